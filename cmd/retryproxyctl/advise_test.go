package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/ctl/advise"
)

// everyNth fails every nth request.
func everyNth(t *testing.T, n int64) *httptest.Server {
	t.Helper()
	var count atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if count.Add(1)%n == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok")
	}))
	t.Cleanup(s.Close)
	return s
}

func TestAdviseAsksARunningProxy(t *testing.T) {
	p := startProxy(t, "UPSTREAM="+everyNth(t, 50).URL, "BACKOFF_BASE=1ms", "ROUTES=tried,idle", "ROUTE_TRIED_PATH=/tried", "ROUTE_TRIED_DRY_RUN=true", "ROUTE_TRIED_UPSTREAM="+everyNth(t, 50).URL, "ROUTE_IDLE_PATH=/idle", "ROUTE_TRIED_QUEUE_TIMEOUT=2s")
	first := func() *advise.Report {
		t.Helper()
		code, out, errs := p.command("advise", "--json")
		var r advise.Report
		if err := json.Unmarshal([]byte(out), &r); code != exitOK || err != nil || errs != "" {
			t.Fatalf("%d %v %q %q", code, err, out, errs)
		}
		return &r
	}
	if r := first(); len(r.Routes) != 3 || r.Routes[0].Enough || !strings.Contains(r.Routes[0].Notes[0], "too little traffic") {
		t.Errorf("before there was any: %+v", r)
	}
	for range 300 {
		p.get("http://" + p.listen + "/")
		p.get("http://" + p.listen + "/tried")
	}
	p.await("counts", func() bool { r := first(); return r.Routes[0].Requests == 300 && r.Routes[2].Requests == 300 })
	r := first()
	main, idle, tried := r.Routes[0], r.Routes[1], r.Routes[2]
	if r.Since != "start" || r.Seconds < 0 || len(r.Notes) != 0 {
		t.Errorf("%+v", r)
	}
	if main.Name != "default" || main.DryRun || !main.Enough || main.Attempts != 306 || main.Failed != 6 || main.Retries != (advise.Retries{Made: 6, Recovered: 6, Load: 0.02}) {
		t.Errorf("%+v", main)
	}
	if tried.Name != "tried" || !tried.DryRun || tried.Attempts != 300 || tried.Failed != 6 || tried.Retries != (advise.Retries{Made: 6, Recovered: 6, GaveUp: 6, Load: 0.02, LoadAtMost: 0.06}) {
		t.Errorf("%+v", tried)
	}
	if idle.Enough || len(idle.Proposals) != 0 {
		t.Errorf("%+v", idle)
	}
	now := map[string]string{}
	for _, proposal := range tried.Proposals {
		now[proposal.Setting] = proposal.Now
	}
	if now["RETRYPROXY_ROUTE_TRIED_ATTEMPT_TIMEOUT"] != "auto" || now["RETRYPROXY_ROUTE_TRIED_BACKOFF_BASE"] != "1ms" {
		t.Errorf("now: %v", now)
	}

	code, text, errs := p.command("advise")
	if code != exitOK || errs != "" || !strings.Contains(text, "route tried: dry run, 300 requests") || !strings.Contains(text, "RETRYPROXY_ROUTE_TRIED_REQUEST_TIMEOUT ") || strings.Contains(text, "\x1b") {
		t.Errorf("%d %q\n%s", code, errs, text)
	}
}

func TestAdviseLooksAtAWindow(t *testing.T) {
	p := startProxy(t, "UPSTREAM="+everyNth(t, 1000).URL)
	for range 250 {
		p.get("http://" + p.listen + "/")
	}
	p.await("counts", func() bool {
		_, metrics := p.get("http://" + p.admin + "/metrics")
		return strings.Contains(metrics, `retryproxy_outcomes_total{outcome="success",route="default"} 250`)
	})
	began := time.Now()
	code, out, _ := p.command("advise", "--window", "1s", "--json")
	var r advise.Report
	if err := json.Unmarshal([]byte(out), &r); code != exitOK || err != nil || time.Since(began) < time.Second {
		t.Fatalf("%d %v after %v: %q", code, err, time.Since(began), out)
	}
	if r.Since != "window" || r.Seconds < 1 || r.Routes[0].Requests != 0 || r.Routes[0].Enough {
		t.Errorf("nothing came within the window, and yet: %+v", r)
	}
}

func TestAdviseRefuses(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			_, _ = io.WriteString(w, "up 1\n")
		}
	}))
	defer other.Close()
	p := &proxy{t: t, admin: other.Listener.Addr().String()}
	if code, out, errs := p.command("advise"); code != exitFailed || out != "" || !strings.Contains(errs, "not the metrics of a retryproxy") {
		t.Errorf("another program: %d %q %q", code, out, errs)
	}
	if code, _, errs := p.command("advise", "--window", "10ms"); code != exitUsage || !strings.Contains(errs, "--window: expected at least 1s") {
		t.Errorf("too short a window: %d %q", code, errs)
	}
	other.Close()
	if code, _, errs := p.command("advise"); code != exitFailed || !strings.Contains(errs, "no response from the admin listener ") {
		t.Errorf("nobody there: %d %q", code, errs)
	}
}
