package bridge

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipeListener accepts the server's end of one net.Pipe.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{} }

// overPipe serves h by net/http's HTTP/2 in memory, for use in a bubble of synctest, and returns a
// transport to it.
func overPipe(t *testing.T, h http.HandlerFunc) *http.Transport {
	l := &pipeListener{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
	s := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = s.Serve(l) }()
	tr := &http.Transport{Protocols: s.Protocols, DialContext: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		l.conns <- theirs
		return ours, nil
	}}
	t.Cleanup(func() { tr.CloseIdleConnections(); _ = s.Close() })
	return tr
}

// asStream serves requests by f as HTTP/1.1 connections.
func asStream(f func(c *ClientStream)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := NewClientStream(w, r, nil, nil, ReadAhead{})
		f(c)
		if !c.Finish() {
			panic(http.ErrAbortHandler)
		}
	}
}

// A response may pause for longer than any write may take.
func TestASilentResponseIsNotReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const deadline = time.Minute
		tr := overPipe(t, asStream(func(c *ClientStream) {
			_ = c.SetWriteDeadline(time.Now().Add(deadline))
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n")
			time.Sleep(10 * deadline)
			_ = c.SetWriteDeadline(time.Now().Add(deadline))
			if _, err := io.WriteString(c, "2\r\ncd\r\n0\r\nX-T: t\r\n\r\n"); err != nil {
				t.Error(err)
			}
		}))
		req, _ := http.NewRequest("GET", "http://a/", nil)
		res, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(res.Body); err != nil || string(b) != "abcd" || res.Trailer.Get("X-T") != "t" {
			t.Errorf("%q %v %v", b, err, res.Trailer)
		}
	})
}

// The same towards an upstream.
func TestASilentUpstreamIsNotReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const deadline = time.Minute
		tr := overPipe(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "ab")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(10 * deadline)
			if r.Context().Err() != nil {
				t.Error("the stream was reset")
			}
			_, _ = io.Copy(w, r.Body)
		})
		cc, err := tr.NewClientConn(t.Context(), "http", "a:80")
		if err != nil {
			t.Fatal(err)
		}
		defer cc.Close()
		if err := cc.Reserve(); err != nil {
			t.Fatal(err)
		}
		s := NewUpstreamStream(cc, UpstreamStreamOptions{Scheme: "http"})
		defer s.Close()
		_ = s.SetDeadline(time.Now().Add(deadline))
		_, _ = io.WriteString(s, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
		r := bufio.NewReader(s)
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadFull(res.Body, make([]byte, 2))
		time.Sleep(5 * deadline)
		_ = s.SetDeadline(time.Now().Add(10 * deadline))
		if _, err := io.WriteString(s, "2\r\ncd\r\n0\r\n\r\n"); err != nil {
			t.Error(err)
		}
		if b, err := io.ReadAll(res.Body); err != nil || string(b) != "cd" {
			t.Errorf("%q %v", b, err)
		}
	})
}

// A client that opens no window ends a write at its deadline, or when the deadline moves to the past.
func TestABlockedWriteEndsAtItsDeadline(t *testing.T) {
	for name, after := range map[string]time.Duration{"in time": 0, "moved to the past": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const deadline = time.Minute
				took, again := make(chan time.Duration, 1), make(chan error, 1)
				tr := overPipe(t, asStream(func(c *ClientStream) {
					began := time.Now()
					_ = c.SetWriteDeadline(began.Add(deadline))
					if after > 0 {
						time.AfterFunc(after, func() { _ = c.SetWriteDeadline(past) })
					}
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
					for err := error(nil); err == nil; {
						_, err = c.Write(make([]byte, 32<<10))
					}
					took <- time.Since(began)
					_, err := c.Write([]byte("a"))
					again <- err
				}))
				req, _ := http.NewRequest("GET", "http://a/", nil)
				res, err := tr.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				want := deadline
				if after > 0 {
					want = after
				}
				if got := <-took; got != want {
					t.Errorf("it ended after %v, want %v", got, want)
				}
				if <-again == nil {
					t.Error("another write did not fail")
				}
				if n, err := io.Copy(io.Discard, res.Body); err == nil {
					t.Errorf("%d bytes looked whole", n)
				}
			})
		})
	}
}

// A response of unknown length gets none, however short it is: one with a length has no trailers over HTTP/1.1.
func TestAShortResponseGetsNoLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := overPipe(t, asStream(func(c *ClientStream) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nX-T: t\r\n\r\n")
		}))
		req, _ := http.NewRequest("GET", "http://a/", nil)
		res, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		if err != nil || string(b) != "ab" || res.ContentLength != -1 || res.Trailer.Get("X-T") != "t" {
			t.Errorf("%q %v, length %d, %v", b, err, res.ContentLength, res.Trailer)
		}
	})
}
