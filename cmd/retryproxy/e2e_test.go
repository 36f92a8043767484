package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/internal/effective"
	"github.com/retryproxy/retryproxy/internal/logtest"
)

// process is retryproxy running in this process, with real sockets.
type process struct {
	t       *testing.T
	listen  []string // addresses, the main one first
	admin   string
	log     *logtest.Buffer
	signals chan os.Signal
	exit    chan int
	client  *http.Client
}

// startProxy runs retryproxy until the test ends; then it must shut down cleanly.
func startProxy(t *testing.T, environ ...string) *process {
	t.Helper()
	p := &process{t: t, log: &logtest.Buffer{}, signals: make(chan os.Signal, 2), exit: make(chan int, 1), client: &http.Client{Transport: &http.Transport{}}}
	env := []string{"RETRYPROXY_LISTEN=127.0.0.1:0", "RETRYPROXY_ADMIN_LISTEN=127.0.0.1:0"}
	for _, e := range environ {
		env = append(env, "RETRYPROXY_"+e)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		p.exit <- run(ctx, &outside{env: env, stdout: p.log, stderr: p.log, signals: func() (<-chan os.Signal, func()) { return p.signals, func() {} }})
	}()
	t.Cleanup(func() {
		p.client.CloseIdleConnections()
		cancel()
		if code := p.ended(); code != exitOK {
			t.Errorf("exit code %d\n%s", code, p.log)
		}
	})
	p.readStart()
	return p
}

// ended waits for the exit code. If it takes too long, it forces the end.
func (p *process) ended() int {
	select {
	case code := <-p.exit:
		return code
	case <-time.After(patience):
		p.signals <- syscall.SIGINT
		p.signals <- syscall.SIGINT
		return <-p.exit
	}
}

func (p *process) readStart() {
	p.t.Helper()
	var line map[string]any
	p.await("start", func() bool {
		for text := range strings.SplitSeq(p.log.String(), "\n") {
			if json.Unmarshal([]byte(text), &line) == nil && line["msg"] == "started" {
				return true
			}
		}
		return false
	})
	for _, name := range []string{"listen", "listen_2"} {
		if address, ok := line[name].(string); ok {
			p.listen = append(p.listen, address)
		}
	}
	p.admin, _ = line["admin"].(string)
	p.await("readiness", func() bool { status, _ := p.ask("/readyz"); return status == 200 })
}

func (p *process) await(what string, done func() bool) {
	p.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if done() {
			return
		}
	}
	p.t.Fatalf("no %s in %v:\n%s", what, patience, p.log)
}

// ask requests a path of the admin listener.
func (p *process) ask(path string) (int, string) {
	response, err := p.client.Get("http://" + p.admin + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close() //nolint:errcheck // only a test
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

// metric returns the value of a series, or "".
func (p *process) metric(series string) string {
	_, body := p.ask("/metrics")
	if m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(body); m != nil {
		return m[1]
	}
	return ""
}

// get sends a request to the listener and reads the response.
func (p *process) get(listener int, path string) (*http.Response, string) {
	p.t.Helper()
	response, err := p.client.Get("http://" + p.listen[listener] + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // only a test
	body, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return response, string(body)
}

// failing answers that many requests with 503, and later ones with 200 and its name.
func failing(t *testing.T, name string, times int32) *httptest.Server {
	t.Helper()
	var left atomic.Int32
	left.Store(times)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if left.Add(-1) >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, name)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestServesRetriesAndCounts(t *testing.T) {
	a, b := failing(t, "a", 2), failing(t, "b", 0)
	p := startProxy(t, "UPSTREAM="+a.URL, "BACKOFF_BASE=1ms", "ROUTES=bee", "ROUTE_BEE_LISTEN=127.0.0.1:00", "ROUTE_BEE_UPSTREAM="+b.URL)
	response, body := p.get(0, "/x")
	if response.StatusCode != 200 || body != "a" || response.Header.Get("X-Retryproxy-Attempts") != "3" {
		t.Errorf("%d %q %v", response.StatusCode, body, response.Header)
	}
	if _, body = p.get(1, "/x"); body != "b" {
		t.Errorf("the route's own listener gave %q", body)
	}
	p.await("counts", func() bool { return p.metric(`retryproxy_outcomes_total{outcome="success",route="bee"}`) == "1" })
	for series, want := range map[string]string{
		`retryproxy_outcomes_total{outcome="recovered",route="default"}`:         "1",
		`retryproxy_requests_total{code="200",method="GET",route="default"}`:     "1",
		`retryproxy_attempts_total{class="unknown",code="503",route="default"}`:  "2",
		`retryproxy_retries_total{reason="status_503",route="default"}`:          "2",
		`retryproxy_upstream_connections{state="idle",upstream="` + a.URL + `"}`: "1",
		`retryproxy_config_reloads_total{result="success"}`:                      "1",
		`retryproxy_draining`: "0",
	} {
		if got := p.metric(series); got != want {
			t.Errorf("%s: %q, want %q", series, got, want)
		}
	}
}

// Two routes to one upstream with separate budgets have two pools. Their series must not collide,
// or no scrape works.
func TestOneUpstreamWithTwoBudgetsCanBeScraped(t *testing.T) {
	a := failing(t, "a", 0)
	p := startProxy(t, "UPSTREAM="+a.URL, "ROUTES=x", "ROUTE_X_PATH=/x", "ROUTE_X_BUDGET_BURST=3")
	if status, body := p.ask("/metrics"); status != 200 || !strings.Contains(body, `retryproxy_budget_tokens{upstream="`+a.URL+` #2"}`) {
		t.Errorf("%d %s", status, body)
	}
}

func TestConfigIsShownToLoopbackOnlyAndWithoutChange(t *testing.T) {
	p := startProxy(t, "UPSTREAM=http://127.0.0.1:1", "MAX_RETRIES=5", "ROUTES=x", "ROUTE_X_PATH=/x/*", "RETRY_METHODS=GET,POST")
	status, body := p.ask("/config")
	var v effective.Config
	if err := json.Unmarshal([]byte(body), &v); status != 200 || err != nil {
		t.Fatalf("%d %v", status, err)
	}
	if v.Position != "inbound" || len(v.Routes) != 2 || v.Routes[1].Match["PATH"] != "/x/*" || v.Routes[1].Settings["MAX_RETRIES"] != (effective.Value{Value: "5", SetBy: "RETRYPROXY_MAX_RETRIES"}) || len(v.Warnings) != 1 {
		t.Errorf("%+v", v)
	}
	request, _ := http.NewRequest("GET", "http://"+p.admin+"/config", nil)
	request.Host = "rebound.example"
	response, err := p.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if _ = response.Body.Close(); response.StatusCode != 403 {
		t.Errorf("%d for another Host", response.StatusCode)
	}
}

func TestEndLetsRunningRequestsEnd(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, "done")
	}))
	t.Cleanup(upstream.Close)
	p := startProxy(t, "UPSTREAM="+upstream.URL, "DRAIN_DELAY=50ms")
	type answer struct {
		response *http.Response
		body     string
	}
	answered := make(chan answer, 1)
	go func() {
		response, body := p.get(0, "/slow")
		answered <- answer{response, body}
	}()
	<-arrived
	hook := make(chan string, 1) // of the application in the same Pod
	go func() {
		status, body := p.ask("/drained")
		hook <- fmt.Sprint(status, " ", body)
	}()
	p.signals <- syscall.SIGTERM
	p.await("unreadiness", func() bool { status, body := p.ask("/readyz"); return status == 503 && body == "draining\n" })
	if p.metric("retryproxy_draining") != "1" {
		t.Error("the metric does not say that it drains")
	}
	p.await("the listener's end", func() bool {
		conn, err := net.Dial("tcp", p.listen[0])
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	if status, _ := p.ask("/livez"); status != 200 {
		t.Errorf("not alive while draining: %d", status)
	}
	select {
	case early := <-hook:
		t.Errorf("/drained answered %q while a request was in flight", early)
	default:
	}
	close(release)
	a := <-answered
	if a.body != "done" || !a.response.Close {
		t.Errorf("%q, close %v", a.body, a.response.Close)
	}
	if got := <-hook; got != "200 drained\n" {
		t.Errorf("/drained answered %q after the drain", got)
	}
	if code := p.ended(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	p.exit <- exitOK // for the cleanup
}

func TestRequestsAreTakenDuringTheDelay(t *testing.T) {
	p := startProxy(t, "UPSTREAM="+failing(t, "a", 0).URL, "DRAIN_DELAY=1m")
	p.signals <- syscall.SIGTERM
	p.await("unreadiness", func() bool { status, _ := p.ask("/readyz"); return status == 503 })
	if _, body := p.get(0, "/"); body != "a" {
		t.Errorf("%q", body)
	}
	p.signals <- syscall.SIGHUP // has no effect any more
	p.signals <- syscall.SIGINT
	if code := p.ended(); code != exitFailed || !strings.Contains(p.log.String(), "second signal") {
		t.Errorf("exit code %d\n%s", code, p.log)
	}
	p.exit <- exitOK // for the cleanup
}

func TestReloadChangesWhatIsServed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "env")
	set := func(content string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set("RETRYPROXY_MAX_RETRIES=0\n")
	upstream := failing(t, "a", 2)
	p := startProxy(t, "UPSTREAM="+upstream.URL, "BACKOFF_BASE=1ms", "CONFIG_FILE="+file)
	if response, _ := p.get(0, "/"); response.StatusCode != 503 || response.Header.Get("X-Retryproxy-Reason") != "retries_off" {
		t.Errorf("before: %d %v", response.StatusCode, response.Header)
	}
	set("RETRYPROXY_MAX_RETRIES=2\nRETRYPROXY_ACCESS_LOG=true\nRETRYPROXY_ADMIN_LISTEN=:1\n")
	p.signals <- syscall.SIGHUP
	p.await("the refusal of a name in both places", func() bool { return p.metric(`retryproxy_config_reloads_total{result="failure"}`) == "1" })
	set("RETRYPROXY_MAX_RETRIES=2\nRETRYPROXY_ADMIN_ALLOW=10.0.0.0/8\n")
	p.signals <- syscall.SIGHUP
	p.await("the reload", func() bool { return p.metric(`retryproxy_config_reloads_total{result="success"}`) == "2" })
	if response, body := p.get(0, "/"); response.StatusCode != 200 || body != "a" {
		t.Errorf("after: %d %q", response.StatusCode, body)
	}
	for _, want := range []string{
		`"outcome":"gave_up_retries_off"`, // from the data path, for the request that failed
		"is set in the environment and in " + file + ":3;",
		"the previous one stays in force",
		`takes effect at the next start only","setting":"RETRYPROXY_ADMIN_ALLOW"`,
		`"changed":["RETRYPROXY_MAX_RETRIES"]`,
	} {
		if !strings.Contains(p.log.String(), want) {
			t.Errorf("the log does not say %s:\n%s", want, p.log)
		}
	}
}

func TestTLSUpstreamWithItsOwnAuthority(t *testing.T) {
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s", r.TLS.ServerName, r.Host)
	}))
	upstream.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	upstream.Config.ErrorLog = nil
	upstream.StartTLS()
	defer upstream.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: upstream.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startProxy(t, "UPSTREAM="+upstream.URL, "UPSTREAM_CA="+ca, "UPSTREAM_HOST=example.com:8443")
	if _, body := p.get(0, "/"); body != "example.com example.com:8443" {
		t.Errorf("%q", body)
	}
	_, metrics := p.ask("/metrics")
	if want := fmt.Sprintf("retryproxy_certificate_expiry_timestamp_seconds{kind=\"upstream\",name=%q} %v", upstream.URL, float64(upstream.Certificate().NotAfter.Unix())); !strings.Contains(metrics, want) {
		t.Errorf("no %s in\n%s", want, regexp.MustCompile(`(?m)^.*certificate.*$`).FindAllString(metrics, -1))
	}
}

// setRetryPercent changes the share of retries that are made, as curl --json does.
func (p *process) setRetryPercent(percent string) {
	p.t.Helper()
	response, err := p.client.Post("http://"+p.admin+"/retry-percent", "application/json", strings.NewReader(percent))
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // only a test
	if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != 200 || string(body) != percent+"\n" {
		p.t.Errorf("%d %q, %v", response.StatusCode, body, err)
	}
}

func TestRetriesAreSwitchedOffLive(t *testing.T) {
	file := filepath.Join(t.TempDir(), "env")
	set := func(content string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set("")
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }))
	defer upstream.Close()
	p := startProxy(t, "UPSTREAM="+upstream.URL, "BACKOFF_BASE=1ms", "BUDGET_RATIO=off", "CONFIG_FILE="+file)
	reason := func() string {
		response, _ := p.get(0, "/")
		return response.Header.Get("X-Retryproxy-Reason")
	}
	p.setRetryPercent("0")
	if got := reason(); got != "switched_off" {
		t.Errorf("at 0: %q", got)
	}
	if status, body := p.ask("/retry-percent"); status != 200 || body != "0\n" {
		t.Errorf("%d %q", status, body)
	}
	p.setRetryPercent("100")
	if got := reason(); got != "retries_exhausted" {
		t.Errorf("switched on: %q", got)
	}
	if got := p.metric("retryproxy_retries_enabled_ratio"); got != "1" {
		t.Errorf("the gauge says %s", got)
	}

	// A reload keeps the switch.
	p.setRetryPercent("40")
	set("RETRYPROXY_MAX_RETRIES=1\n")
	p.signals <- syscall.SIGHUP
	p.await("the reload", func() bool { return strings.Contains(p.log.String(), `"changed":["RETRYPROXY_MAX_RETRIES"]`) })
	if got := p.metric("retryproxy_retries_enabled_ratio"); got != "0.4" {
		t.Errorf("a reload moved it to %s", got)
	}
	if !strings.Contains(p.log.String(), `"from_percent":100,"to_percent":40`) {
		t.Errorf("the change was not logged:\n%s", p.log)
	}
}
