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

func TestOnlyTheRightAnswerIsSuccess(t *testing.T) {
	c := call{1, "PUT", "/upload/1", []byte("hello")}
	for body, want := range map[string]bool{
		`{"path":"/upload/1","attempt":2,"bytes":5,"crc32":907060870}`: true,
		`{"path":"/upload/2","bytes":5,"crc32":907060870}`:             false,
		`{"path":"/upload/1","bytes":4,"crc32":907060870}`:             false,
		`{"path":"/upload/1","bytes":5,"crc32":907060871}`:             false,
		"ok": false,
	} {
		if c.isAnsweredBy([]byte(body)) != want {
			t.Errorf("%s: %v", body, !want)
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
	for i, want := range []string{other, reset, reset} { // the first is 200 with a wrong body
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
	tr.run(ctx, ctx) // hangs here on failure
	for s := range numSides {
		if c := &tr.tally[s]; c.requests() != 0 {
			t.Errorf("%v: %v counted though no response came", s, c.counts)
		}
	}
	if len(tr.slots) > int(numSides) {
		t.Errorf("%d slots still taken", len(tr.slots))
	}
}

func TestRequestsUnderWayAreBounded(t *testing.T) {
	url := stalled(t)
	tr := newTraffic(1, 100, url, url)
	for len(tr.slots) < maxUnderWay-1 {
		tr.slots <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if tr.room(ctx) {
		t.Error("room for two requests where one may still be sent")
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
