package demo

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

func TestCallsAreTheSameForASeedAndReachEveryRoute(t *testing.T) {
	a, b := newTraffic(4, 1, "", ""), newTraffic(4, 1, "", "")
	routes := map[string]int{}
	for n := range uint64(500) {
		x, y := a.call(n), b.call(n)
		if x.method != y.method || x.path != y.path || !bytes.Equal(x.body, y.body) {
			t.Fatalf("call %d: %s %s and %s %s", n, x.method, x.path, y.method, y.path)
		}
		routes[x.method+" "+x.path[:7]]++
	}
	for _, want := range []string{"GET /search", "PUT /upload", "POST /checko"} {
		if routes[want] < 50 {
			t.Errorf("%d calls of %q among 500: %v", routes[want], want, routes)
		}
	}
}

// The side without retries must not retry: net/http's client retries a request by itself when a
// kept connection is reset.
func TestTheClientNeverRepeats(t *testing.T) {
	var sends atomic.Int64
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if sends.Add(1) > 1 {
			resetConnection(w)
		}
	}))
	defer up.Close()
	tr := newTraffic(1, 1, up.URL, up.URL)
	for i, want := range []string{success, reset, reset} {
		if got := tr.ask(t.Context(), direct, call{uint64(i), "GET", "/", nil}); got != want {
			t.Errorf("request %d: %v, want %v", i, got, want)
		}
	}
	if sends.Load() != 3 {
		t.Errorf("%d sends for 3 requests", sends.Load())
	}
}

// stalled accepts connections, in the kernel's queue, and never responds.
func stalled(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return "http://" + l.Addr().String()
}

func TestTrafficEndsAtOnceWithItsContext(t *testing.T) {
	url := stalled(t)
	tr := newTraffic(1, 100, url, url)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	tr.run(ctx, ctx, func() {}) // hangs here on failure
	for s := range numSides {
		if c := &tr.tally[s]; c.requests() != 0 {
			t.Errorf("%v: %v counted though no response came", s, c.counts)
		}
	}
	if n := tr.inFlight.Load(); n != 0 {
		t.Errorf("%d requests are still in flight", n)
	}
}

func TestRequestsInFlightAreBounded(t *testing.T) {
	var sends atomic.Int64
	up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { sends.Add(1) }))
	defer up.Close()
	tr := newTraffic(1, 100, up.URL, up.URL)
	tr.inFlight.Store(maxInFlight - 1)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	tr.run(t.Context(), ctx, func() {})
	if n := sends.Load(); n != 0 {
		t.Errorf("%d requests sent where only one had room", n)
	}
}

func TestNothingListensIsOther(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	url := "http://" + l.Addr().String()
	if got := newTraffic(1, 1, url, url).ask(t.Context(), direct, call{1, "GET", "/", nil}); got != other {
		t.Errorf("%v, want other", got)
	}
}
