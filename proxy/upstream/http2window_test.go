package upstream

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// http2Upstream serves HTTP/2 without TLS.
func http2Upstream(t *testing.T, h http.HandlerFunc) Target {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return Target{Network: "tcp", Address: s.Listener.Addr().String(), Protocol: HTTP2}
}

// request sends a GET on a connection from p.
func request(t *testing.T, p *Pool, path string) *Conn {
	t.Helper()
	c, err := p.Get(t.Context(), GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return c
}

// Responses that nobody reads each fill their own window, and take nothing from the other responses
// of the connection.
func TestUnreadResponsesDoNotStopOthers(t *testing.T) {
	const unread = 8
	var sent atomic.Int64
	p := makePool(t, http2Upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/small" {
			_, _ = io.WriteString(w, "hello")
			return
		}
		piece := make([]byte, 32<<10)
		for {
			n, err := w.Write(piece)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	}), Options{})
	for range unread {
		request(t, p, "/endless")
	}
	for began := time.Now(); sent.Load() < unread*DefaultStreamWindow; time.Sleep(time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("%d bytes were sent, want %d", sent.Load(), unread*DefaultStreamWindow)
		}
	}
	res, err := http.ReadResponse(bufio.NewReader(request(t, p, "/small")), nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(res.Body); err != nil || string(b) != "hello" {
		t.Errorf("%q %v", b, err)
	}
	if n := p.Stats().Dials; n != 1 {
		t.Errorf("%d connections", n)
	}
}
