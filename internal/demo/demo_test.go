package demo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/retryproxy/retryproxy/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// calmSeed is one with which the first curls, whose numbers begin at 1<<32+1,
// are not reset by the upstream.
const calmSeed = 1

// output is a buffer that can be read while the demo writes.
type output struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// until waits for text to have been written.
func (o *output) until(t *testing.T, text string) string {
	t.Helper()
	for range 1000 {
		if s := o.String(); strings.Contains(s, text) {
			return s
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("no %q in\n%s", text, o.String())
	return ""
}

// start runs the demo on free ports; end waits for its exit code.
func start(ctx context.Context, out *output, args ...string) (end func() int) {
	code := make(chan int, 1)
	go func() {
		code <- Run(ctx, Options{Metrics: metrics.New(metrics.Options{}), Args: args, Stdout: out, Stderr: out, Listen: anyPort, AdminListen: anyPort})
	}()
	return func() int { return <-code }
}

var clientsRow = regexp.MustCompile(`(?m)^(without retries|with retryproxy) +(\d+) +([\d.]+) %`)

// clients reads the final table: requests and success in per cent.
func clients(t *testing.T, text string) (requests [numSides]int, success [numSides]float64) {
	t.Helper()
	rows := clientsRow.FindAllStringSubmatch(text, -1)
	if len(rows) != int(numSides) {
		t.Fatalf("%d rows of clients in\n%s", len(rows), text)
	}
	for i, row := range rows {
		requests[i], _ = strconv.Atoi(row[2])
		success[i], _ = strconv.ParseFloat(row[3], 64)
	}
	return requests, success
}

func TestRetriesRaiseSuccess(t *testing.T) {
	var out output
	if code := start(t.Context(), &out, "--for", "2s", "--seed", "1")(); code != exitOK {
		t.Fatalf("exit code %d:\n%s", code, out.String())
	}
	text := out.String()
	requests, success := clients(t, text)
	if requests[direct] < 20 || requests[direct] != requests[proxied] {
		t.Errorf("%v requests, want as many on both sides", requests)
	}
	if success[proxied] <= success[direct] || success[direct] == 100 {
		t.Errorf("%.1f %% success without retries, %.1f %% with", success[direct], success[proxied])
	}
	for _, want := range []string{"  recovered ", "  because of status_503 ", "s  success"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Errorf("an escape code in piped output: %q", text)
	}
	if t.Failed() {
		t.Log(text)
	}
}

// What a person is told to try has to work as it stands.
func TestTheCurlLinesWork(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("no curl here")
	}
	var out output
	ctx, cancel := context.WithCancel(t.Context())
	end := start(ctx, &out, "--seed", strconv.Itoa(calmSeed))
	defer func() { cancel(); end() }()
	lines := regexp.MustCompile(`(?m)^  (curl .*)$`).FindAllStringSubmatch(out.until(t, "\n\n   1 s"), -1)
	if len(lines) != 5 {
		t.Fatalf("%d curl lines in\n%s", len(lines), out.String())
	}
	for _, line := range lines {
		got, err := exec.CommandContext(ctx, "sh", "-c", line[1]).Output()
		if err != nil || !bytes.HasPrefix(got, []byte("HTTP/1.1 ")) && !bytes.HasPrefix(got, []byte("retryproxy_outcomes_total{")) {
			t.Errorf("%s\nerror %v, output %q", line[1], err, got)
		}
		if strings.Contains(line[1], "# with retries") && !bytes.Contains(got, []byte("X-Retryproxy-Attempts: ")) {
			t.Errorf("%s did not go through the proxy: %q", line[1], got)
		}
	}
}

// The tables show the metrics, not something like them.
func TestEveryRequestHasItsOutcome(t *testing.T) {
	var out output
	if code := start(t.Context(), &out, "--for", "500ms", "--rate", "100")(); code != exitOK {
		t.Fatalf("exit code %d:\n%s", code, out.String())
	}
	requests, _ := clients(t, out.String())
	row := regexp.MustCompile(`(?m)^requests +(\d+) +(\d+) +(\d+) +(\d+)$`).FindStringSubmatch(out.String())
	if row == nil {
		t.Fatalf("no row of requests in\n%s", out.String())
	}
	total := 0
	for _, cell := range row[1:] {
		n, _ := strconv.Atoi(cell)
		total += n
	}
	if total != requests[proxied] {
		t.Errorf("/metrics counts %d requests, the clients %d:\n%s", total, requests[proxied], out.String())
	}
}

func TestInterruptEndsWithTheSummary(t *testing.T) {
	var out output
	ctx, cancel := context.WithCancel(t.Context())
	end := start(ctx, &out)
	out.until(t, "   1 s")
	cancel()
	if code := end(); code != exitOK {
		t.Errorf("exit code %d, want %d", code, exitOK)
	}
	if requests, _ := clients(t, out.String()); requests[direct] == 0 {
		t.Errorf("no requests in the summary:\n%s", out.String())
	}
}

// onSummary looks at the proxy when the summary is written.
type onSummary struct {
	output
	t     *testing.T
	asked bool
}

func (o *onSummary) Write(p []byte) (int, error) {
	if found := proxyAndMetrics.FindStringSubmatch(o.String()); found != nil && bytes.Contains(p, []byte("What clients saw")) {
		o.asked = true
		if c, err := net.Dial("tcp", strings.TrimPrefix(found[1], "http://")); err == nil {
			_ = c.Close()
			o.t.Error("the proxy still takes requests, whose outcomes the summary lacks")
		}
	}
	return o.output.Write(p)
}

func TestTheSummaryComesAfterTheLastOutcome(t *testing.T) {
	out := &onSummary{t: t}
	if code := Run(t.Context(), Options{
		Metrics: metrics.New(metrics.Options{}), Args: []string{"--for=50ms"}, Stdout: out, Stderr: out, Listen: anyPort, AdminListen: anyPort,
	}); code != exitOK || !out.asked {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
}

var proxyAndMetrics = regexp.MustCompile(`(?s)retryproxy (http://[\d.:]+).*metrics +(http://[\d.:]+)/metrics`)

// addresses reads where the proxy and the admin server are.
func addresses(t *testing.T, out *output) (proxyURL, adminURL string) {
	t.Helper()
	found := proxyAndMetrics.FindStringSubmatch(out.until(t, "Try meanwhile"))
	if found == nil {
		t.Fatalf("no addresses in\n%s", out.String())
	}
	return found[1], found[2]
}

func TestDrainEndsTheDemoAndConfigShowsHow(t *testing.T) {
	var out output
	end := start(t.Context(), &out)
	proxyURL, adminURL := addresses(t, &out)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for path, want := range map[string]string{
		"/readyz":  "ok",
		"/config":  "RETRYPROXY_LISTEN=" + strings.TrimPrefix(proxyURL, "http://"),
		"/metrics": "\nretryproxy_retry_buffer_limit_bytes 6.7108864e+07\n",
	} {
		resp, err := client.Get(adminURL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != 200 || !bytes.Contains(body, []byte(want)) {
			t.Errorf("%s: status %d without %q:\n%s", path, resp.StatusCode, want, body)
		}
	}
	resp, err := client.Post(adminURL+"/drain", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if code := end(); code != exitOK {
		t.Errorf("exit code %d, want %d", code, exitOK)
	}
}

func TestAddressesInUseGiveWayToFreePorts(t *testing.T) {
	var taken [2]string
	for i := range taken {
		l, err := net.Listen("tcp", anyPort)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		taken[i] = l.Addr().String()
	}
	var out output
	code := Run(t.Context(), Options{Metrics: metrics.New(metrics.Options{}), Args: []string{"--for=50ms"}, Stdout: &out, Stderr: &out, Listen: taken[0], AdminListen: taken[1]})
	if code != exitOK {
		t.Fatalf("exit code %d:\n%s", code, out.String())
	}
	proxyURL, adminURL := addresses(t, &out)
	if proxyURL == "http://"+taken[0] || adminURL == "http://"+taken[1] {
		t.Errorf("%s and %s were in use", proxyURL, adminURL)
	}
}

func TestAnAddressThatCannotBeIsAnError(t *testing.T) {
	var out output
	if code := Run(t.Context(), Options{Metrics: metrics.New(metrics.Options{}), Stdout: io.Discard, Stderr: &out, Listen: "nonsense"}); code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
	if !strings.Contains(out.String(), "RETRYPROXY_LISTEN") {
		t.Errorf("the error is %q", out.String())
	}
}

func TestFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want flags
		err  string // part of what stderr says; "" for none
	}{
		{nil, flags{rate: 50, seed: 1}, ""},
		{[]string{"--for", "10s", "--rate=5", "-seed", "9"}, flags{10 * time.Second, 5, 9}, ""},
		{[]string{"--for", "-1s"}, flags{}, "--for must not be negative"},
		{[]string{"--for", "ten"}, flags{}, "invalid value"},
		{[]string{"--rate", "0"}, flags{}, "--rate must be from 1 to 200"},
		{[]string{"--rate", "201"}, flags{}, "--rate must be from 1 to 200"},
		{[]string{"--seed", "-1"}, flags{}, "invalid value"},
		{[]string{"--sed", "1"}, flags{}, "not defined"},
		{[]string{"now"}, flags{}, `unexpected argument "now"`},
	} {
		t.Run(fmt.Sprint(c.args), func(t *testing.T) {
			var stderr bytes.Buffer
			got, err := parse(c.args, io.Discard, &stderr)
			if (err != nil) != (c.err != "") || !strings.Contains(stderr.String(), c.err) {
				t.Fatalf("error %v, stderr %q; want %q", err, stderr.String(), c.err)
			}
			if err == nil && got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

func TestExitCodesOfArguments(t *testing.T) {
	for _, c := range []struct {
		arg          string
		code         int
		says, errors string // the beginnings of stdout and stderr
	}{
		{"--help", exitOK, usage, ""},
		{"--nonsense", exitUsage, "", "retryproxy demo: flag provided but not defined: -nonsense\nUsage: "},
		{"--rate=1000", exitUsage, "", "retryproxy demo: --rate must be"},
	} {
		var stdout, stderr bytes.Buffer
		code := Run(t.Context(), Options{Args: []string{c.arg}, Stdout: &stdout, Stderr: &stderr})
		if code != c.code || !strings.HasPrefix(stdout.String(), c.says) || !strings.HasPrefix(stderr.String(), c.errors) {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", c.arg, code, stdout.String(), stderr.String())
		}
		if (c.says == "") != (stdout.Len() == 0) || (c.errors == "") != (stderr.Len() == 0) {
			t.Errorf("%s: stdout %q, stderr %q", c.arg, stdout.String(), stderr.String())
		}
	}
}
