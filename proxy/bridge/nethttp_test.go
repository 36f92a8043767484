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

// A response may pause for longer than any write may take.
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
