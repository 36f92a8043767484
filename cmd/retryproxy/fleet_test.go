package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/fleet/enginetest"
)

// limited says 429 once, asking for a pause, and 200 ever after.
func limited(t *testing.T, pause string) (url string, requests *atomic.Int32) {
	t.Helper()
	requests = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 1 {
			w.Header().Set("Retry-After", pause)
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, requests
}

// sharing is a process of a fleet that pauses together.
func sharing(t *testing.T, engine, upstream string, more ...string) *process {
	t.Helper()
	return serve(t, append(more, "UPSTREAM="+upstream, "SIDE=outbound", "COOLDOWN_KEY=route", "SHARED="+engine)...)
}

func TestWhatOneProcessMeetsPausesAnother(t *testing.T) {
	s := enginetest.Start(t)
	upstream, requests := limited(t, "30")
	a, b := sharing(t, s.URL, upstream, "REQUEST_TIMEOUT=10s"), sharing(t, s.URL, upstream, "REQUEST_TIMEOUT=10s")
	for _, p := range []*process{a, b} {
		p.await("the engine", func() bool { return p.metric("retryproxy_shared_processes") == "2" })
	}
	if response, _ := a.get(0, "/"); response.StatusCode != 429 {
		t.Fatalf("got %d", response.StatusCode)
	}
	b.await("the word", func() bool { return b.metric(`retryproxy_shared_cooldowns_total{way="learnt"}`) == "1" })
	response, _ := b.get(0, "/")
	if response.StatusCode != 429 || response.Header.Get("X-Retryproxy-Reason") != "cooldown" || response.Header.Get("Retry-After") == "" || requests.Load() != 1 {
		t.Errorf("%d, %v, after %d requests at the upstream", response.StatusCode, response.Header, requests.Load())
	}
}

// No request fails or waits for an engine that hangs, or that is not there.
func TestRequestsDoNotWaitForTheEngine(t *testing.T) {
	s := enginetest.Start(t)
	upstream := failing(t, "fine", 0)
	p := sharing(t, s.URL, upstream.URL)
	p.await("the engine", func() bool { return p.metric("retryproxy_shared_up") == "1" })
	s.Pause()
	defer s.Continue()
	began := time.Now()
	for range 100 {
		if response, body := p.get(0, "/"); response.StatusCode != 200 || body != "fine" {
			t.Fatalf("%d %q", response.StatusCode, body)
		}
	}
	if d := time.Since(began); d > 400*time.Millisecond { // less than one wait for the engine
		t.Errorf("100 requests took %v", d)
	}
	p.await("loss", func() bool { return p.metric("retryproxy_shared_up") == "0" })
	if response, _ := p.get(0, "/"); response.StatusCode != 200 || strings.Count(p.log.String(), "does not answer") != 1 {
		t.Errorf("%d\n%s", response.StatusCode, p.log)
	}
}

func TestAnEngineWithoutItsFiles(t *testing.T) {
	for _, command := range []string{"check", "serve"} {
		o := &outside{args: []string{command}, env: []string{"RETRYPROXY_UPSTREAM=http://api.example", "RETRYPROXY_SHARED=redis://cache", "RETRYPROXY_SHARED_PASSWORD_FILE=/none"}, stdout: &logBuffer{}, stderr: &logBuffer{}}
		code := run(t.Context(), o)
		if said := o.stdout.(*logBuffer).String() + o.stderr.(*logBuffer).String(); code != exitUsage || !strings.Contains(said, "shared state on redis://cache: the password: open /none") {
			t.Errorf("%s: exit code %d, %s", command, code, said)
		}
	}
}
