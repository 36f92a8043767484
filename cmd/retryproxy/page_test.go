package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/internal/admin/page"
)

// lookAt returns the JSON behind the page.
func (p *process) lookAt() (s page.Snapshot) {
	p.t.Helper()
	status, body := p.ask("/page/state.json")
	if err := json.Unmarshal([]byte(body), &s); status != 200 || err != nil {
		p.t.Fatalf("%d, %v: %s", status, err, body)
	}
	return s
}

func TestPageShowsWhatTheProxyDid(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/bad") {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(up.Close)
	p := startProxy(t, "UPSTREAM="+up.URL, "ROUTE_BAD_PATH=/bad/*", "ROUTE_BAD_MAX_RETRIES=2", "ROUTE_BAD_BACKOFF=fixed", "ROUTE_BAD_BACKOFF_BASE=2ms", "ROUTES=bad,quiet", "ROUTE_QUIET_PATH=/quiet", "ROUTE_QUIET_DRY_RUN=true")
	p.setRetryPercent("90")
	p.get(0, "/fine")
	p.get(0, "/bad/x?token=secret")
	p.get(0, "/quiet")

	var s page.Snapshot // a client may get its response before it is counted
	p.await("all three in the page", func() bool {
		s = p.lookAt()
		return len(s.State.Routes) == 3 && s.State.Routes[1].Last.FirstAttempt == 1 && s.State.Routes[2].Last.FirstAttempt == 1 && len(s.Requests.Failed) == 1
	})
	if s.State.Routes[0].Name != "bad" || s.State.Routes[2].Name != "quiet" {
		t.Fatalf("%+v", s.State.Routes)
	}
	bad := s.State.Routes[0]
	if bad.Last.Failed != 1 || bad.Now.Requests != 1 {
		t.Errorf("%+v", s.State.Routes)
	}
	if r := bad.Rule; r.Upstream != up.URL || r.MaxRetries != 2 || r.Backoff != "fixed" || len(r.Curve) != 2 || r.Curve[1] != (page.Wait{Min: 2, Mean: 2, Max: 2}) || r.RequestTimeoutMS != 30000 {
		t.Errorf("%+v", r)
	}
	if len(s.Requests.Failed) != 1 || s.Requests.Failed[0].Path != "/bad/x" || len(s.Requests.Failed[0].Attempts) == 0 || s.Requests.Failed[0].Attempts[0].Result != "503" {
		t.Errorf("%+v", s.Requests.Failed)
	}
	if u := s.State.Upstreams; len(u) != 2 || u[1].Name != up.URL+" #2" || u[0].Name != up.URL || u[0].Breaker != "closed" || !u[0].HasBudget {
		t.Errorf("%+v", u)
	}
	if bad.Rule.DryRun || !s.State.Routes[2].Rule.DryRun {
		t.Errorf("%+v", s.State.Routes)
	}
	if host, err := os.Hostname(); err != nil || s.State.Host != host {
		t.Errorf("the host is %q, expected %q, %v", s.State.Host, host, err)
	}
	if pr := s.State.Process; pr.RetryPercent != 90 || pr.Position != "inbound" || pr.RetryBufferLimit == 0 || pr.Draining {
		t.Errorf("%+v", pr)
	}
	if _, body := p.ask("/page/state.json"); strings.Contains(body, "secret") {
		t.Error("the query is in it")
	}
	if status, body := p.ask("/"); status != 200 || !strings.Contains(body, "<h1>retryproxy</h1>") {
		t.Errorf("%d %s", status, body)
	}
}

// Open pages do not delay the shutdown.
func TestOpenPageDoesNotHoldUpTheEnd(t *testing.T) {
	p := startProxy(t, "UPSTREAM="+failing(t, "a", 0).URL)
	response, err := p.client.Get("http://" + p.admin + "/page/events")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // only a test
	first, err := bufio.NewReader(response.Body).ReadString('\n')
	if err != nil || first != "event: state\n" {
		t.Fatalf("%q, %v", first, err)
	}
	ended := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, response.Body); ended <- err }()
	if status, body := tell(t, p, "/quit"); status != 202 {
		t.Fatalf("%d %s", status, body)
	}
	if code := p.ended(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	p.exit <- exitOK // for the end of the test
	if err := <-ended; err != nil {
		t.Errorf("the stream was cut off: %v", err)
	}
}

func tell(t *testing.T, p *process, path string) (int, string) {
	t.Helper()
	response, err := p.client.Post("http://"+p.admin+path, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // only a test
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}
