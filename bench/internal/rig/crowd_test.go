package rig

import (
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

func TestSourcesHaveRoom(t *testing.T) {
	seen := map[string]int{}
	for i := range 20_000 {
		ip := source(i)
		if !ip.IsLoopback() || ip.Equal(net.IPv4(127, 0, 0, 1)) {
			t.Fatalf("client %d calls from %v", i, ip)
		}
		if seen[ip.String()]++; seen[ip.String()] > 20 {
			t.Errorf("%d clients call from %s", seen[ip.String()], ip)
		}
	}
}

func TestTryCountsWhatCameOfIt(t *testing.T) {
	var status atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) }))
	// With patience that no working machine exhausts.
	c, line := &Crowd{Patience: time.Minute}, NewTimeline()
	client := s.Client()
	for _, code := range []int32{200, 503, 200} {
		status.Store(code)
		if got := c.Try(t.Context(), client, s.URL, line); got != (code == 200) {
			t.Errorf("status %d: good is %v", code, got)
		}
	}
	s.CloseClientConnections()
	if !c.Try(t.Context(), client, s.URL, line) {
		t.Errorf("a kept connection that was closed meanwhile failed the try")
	}
	s.Close()
	if c.Try(t.Context(), client, s.URL, line) {
		t.Error("good without a server")
	}
	if got, want := line.Sum(0, time.Hour), (Counts{Good: 3, Bad + "503": 1, Bad + "refused": 1}); !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

func TestTryIsGivenUp(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, line := &Crowd{Patience: 50 * time.Millisecond}, NewTimeline()
	if c.Try(t.Context(), &http.Client{Transport: &http.Transport{}}, "http://"+l.Addr().String(), line) || line.Sum(0, time.Hour)[Late] != 1 {
		t.Errorf("without a response: %v", line.Sum(0, time.Hour))
	}
}
