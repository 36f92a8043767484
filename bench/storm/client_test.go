package main

import (
	"context"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/httpclient"
)

func TestPauses(t *testing.T) {
	o := clientOptions{again: 100 * time.Millisecond, most: 10 * time.Second}
	c := &client{o: &o, rand: rand.New(rand.NewPCG(1, 2))}
	for _, failed := range []int{0, 1, 1000} {
		if got := c.pause(failed); got != o.again {
			t.Errorf("naive, %d failed before: %v, want %v", failed, got, o.again)
		}
	}
	o.backoff = true
	for failed, most := range map[int]time.Duration{0: 100 * time.Millisecond, 3: 800 * time.Millisecond, 7: 10 * time.Second, 10_000: 10 * time.Second} {
		var longest time.Duration
		for range 1000 {
			d := c.pause(failed)
			if d < 0 || d > most {
				t.Fatalf("backoff, %d failed before: %v is not in [0, %v]", failed, d, most)
			}
			longest = max(longest, d)
		}
		if longest < most*9/10 {
			t.Errorf("backoff, %d failed before: longest %v of 1000, want near %v", failed, longest, most)
		}
	}
}

func TestSourcesHaveRoom(t *testing.T) {
	seen := map[string]int{}
	for i := range 20_000 {
		ip := sourceOf(i)
		if !ip.IsLoopback() || ip.Equal(net.IPv4(127, 0, 0, 1)) {
			t.Fatalf("client %d calls from %v", i, ip)
		}
		seen[ip.String()]++
	}
	for ip, n := range seen {
		if n > 20 {
			t.Errorf("%d clients call from %s", n, ip)
		}
	}
}

// newClient calls addr, with patience that no working machine exhausts.
func newClient(addr string) *client {
	o := &clientOptions{n: 1, every: time.Hour, patience: 30 * time.Second, again: time.Millisecond, most: time.Second, paths: 1}
	r := newRecord(time.Hour)
	c := &client{o: o, record: r, rand: rand.New(rand.NewPCG(1, 2))}
	c.client = httpclient.Client{Addr: addr, Request: []byte("GET / HTTP/1.1\r\nHost: storm.example\r\n\r\n")}
	return c
}

func TestTryTellsWhatCameOfIt(t *testing.T) {
	var status atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) }))
	addr := strings.TrimPrefix(s.URL, "http://")
	c := newClient(addr)
	defer c.client.HangUp()
	for _, code := range []int32{200, 503, 200} {
		status.Store(code)
		if got := c.try(context.Background()); got != (code == 200) {
			t.Errorf("status %d: good is %v", code, got)
		}
	}
	s.CloseClientConnections()
	if !c.try(context.Background()) {
		t.Errorf("a kept connection that was closed meanwhile failed the try: %v", c.record.kinds[0])
	}
	s.Close()
	if c.try(context.Background()) {
		t.Error("good without a server")
	}
	got := c.record.sum(0, time.Hour)
	if want := (tick{Good: 3, Bad: 2}); got != want {
		t.Errorf("noted %+v, want %+v", got, want)
	}
	kinds := map[string]int{}
	for _, k := range c.record.kinds {
		for kind, n := range k {
			kinds[kind] += n
		}
	}
	if want := map[string]int{"503": 1, "refused": 1}; !maps.Equal(kinds, want) {
		t.Errorf("kinds %v, want %v", kinds, want)
	}
}

func TestTryIsGivenUp(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := newClient(l.Addr().String())
	c.o.patience = 50 * time.Millisecond
	if c.try(context.Background()) {
		t.Error("good without a response")
	}
	if got, want := c.record.sum(0, time.Hour), (tick{Late: 1}); got != want {
		t.Errorf("noted %+v, want %+v", got, want)
	}
	if c.client.Connected() {
		t.Error("the connection is kept")
	}
}
