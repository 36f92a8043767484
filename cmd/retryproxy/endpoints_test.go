package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// backends are servers of one upstream. Each answers with its index, and counts its requests. Its health
// checks fail while sick has its index.
func backends(t *testing.T, n int) (upstream string, sick *atomic.Int64) {
	t.Helper()
	sick = new(atomic.Int64)
	sick.Store(-1)
	var urls []string
	for i := range n {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/healthz" && sick.Load() == int64(i) {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = fmt.Fprint(w, i)
		}))
		t.Cleanup(s.Close)
		urls = append(urls, s.URL)
	}
	return strings.Join(urls, ","), sick
}

// served asks n times as each user, and returns how many requests each backend got.
func (p *process) served(n int, user string) map[string]int {
	p.t.Helper()
	at := map[string]int{}
	for range n {
		r, err := http.NewRequest("GET", "http://"+p.listen[0]+"/", nil)
		if err != nil {
			p.t.Fatal(err)
		}
		if user != "" {
			r.Header.Set("X-User", user)
		}
		response, err := p.client.Do(r)
		if err != nil {
			p.t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != 200 {
			p.t.Fatal(response.StatusCode, err)
		}
		at[string(body)]++
	}
	return at
}

func TestAnEndpointThatFailsItsHealthChecksGetsNoRequests(t *testing.T) {
	upstream, sick := backends(t, 3)
	p := startProxy(t, "UPSTREAM="+upstream, "HEALTH_PATH=/healthz", "HEALTH_INTERVAL=100ms", "BALANCE=round-robin")
	if at := p.served(30, ""); at["0"] != 10 || at["1"] != 10 || at["2"] != 10 {
		t.Errorf("in turn: %v", at)
	}
	sick.Store(1)
	unhealthy := func() string {
		return p.metric(`retryproxy_upstream_endpoints{state="unhealthy",upstream="` + upstream + `"}`)
	}
	p.await("unhealthy endpoint", func() bool { return unhealthy() == "1" })
	if at := p.served(30, ""); at["0"] != 15 || at["2"] != 15 {
		t.Errorf("one is unhealthy: %v", at)
	}
	sick.Store(-1)
	p.await("healthy endpoint", func() bool { return unhealthy() == "0" })
	if at := p.served(30, ""); at["1"] != 10 {
		t.Errorf("it passes again: %v", at)
	}
	for _, want := range []string{"fails its health checks", "status 503", "passes its health checks again"} {
		p.await("line with "+want, func() bool { return strings.Contains(p.log.String(), want) })
	}
}

func TestAUserStaysWithAnEndpoint(t *testing.T) {
	upstream, _ := backends(t, 3)
	p := startProxy(t, "UPSTREAM="+upstream, "BALANCE=hash:X-User")
	used := map[string]bool{}
	for user := range 20 {
		at := p.served(5, fmt.Sprint("user", user))
		if len(at) != 1 {
			t.Errorf("user %d: %v", user, at)
		}
		for addr := range at {
			used[addr] = true
		}
	}
	if len(used) != 3 {
		t.Errorf("20 users use %v", used)
	}
	if at := p.served(60, ""); len(at) != 3 {
		t.Errorf("without the header: %v", at)
	}
}
