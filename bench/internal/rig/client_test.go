package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// counted is a server that counts its connections.
func counted(t *testing.T, h http.HandlerFunc) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	var conns atomic.Int64
	s := httptest.NewUnstartedServer(h)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s, &conns
}

func TestExchangeKeepsItsConnectionAndReplacesAClosedOne(t *testing.T) {
	s, conns := counted(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/close" {
			w.Header().Set("Connection", "close")
		}
		fmt.Fprint(w, "hello")
	})
	c := &Client{Addr: strings.TrimPrefix(s.URL, "http://"), Request: []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")}
	defer c.HangUp()
	ask := func(want int64, kept bool) {
		t.Helper()
		status, err := c.Exchange(t.Context(), time.Now().Add(time.Minute))
		if status != 200 || err != nil || conns.Load() != want || c.Connected() != kept {
			t.Fatalf("status %d, %v, %d connections (want %d), kept: %v", status, err, conns.Load(), want, c.Connected())
		}
	}
	ask(1, true)
	ask(1, true)
	s.CloseClientConnections()
	ask(2, true)
	c.Request = []byte("GET /close HTTP/1.1\r\nHost: a\r\n\r\n")
	ask(2, false)
	ask(3, false)
}

func TestTheEndOfTheContextEndsAnExchange(t *testing.T) {
	s, _ := counted(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	c := &Client{Addr: strings.TrimPrefix(s.URL, "http://"), Request: []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Exchange(ctx, time.Now().Add(time.Hour)); err == nil || c.Connected() {
		t.Errorf("%v, connected: %v", err, c.Connected())
	}
}

func TestKinds(t *testing.T) {
	for want, err := range map[string]error{
		"refused": fmt.Errorf("dial: %w", syscall.ECONNREFUSED),
		"reset":   syscall.EPIPE,
		"closed":  io.ErrUnexpectedEOF,
		"timeout": os.ErrDeadlineExceeded,
		"other":   errors.New("malformed"),
	} {
		if got := KindOf(err); got != want {
			t.Errorf("%v is %q, want %q", err, got, want)
		}
	}
}
