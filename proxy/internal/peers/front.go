package peers

import (
	"bufio"
	"context"
	"net"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// Front is a proxy as its clients see it.
type Front struct {
	Addr string // of its first listener
	Seen *Recorder
	T    testing.TB
}

// Server is a proxy that can be started.
type Server interface {
	Listen() error
	Addrs() []net.Addr
	Serve(context.Context) error
}

// Serve has s serve until the test ends, or until stop, which returns when everything has ended.
func Serve(t testing.TB, s Server, seen *Recorder) (f *Front, stop func()) {
	t.Helper()
	failAfterPatience(t)
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return &Front{Addr: s.Addrs()[0].String(), Seen: seen, T: t}, stop
}

// Dial opens a client's connection; everything on it has to end within Patience.
func (p *Front) Dial() *Client {
	p.T.Helper()
	nc, err := net.Dial("tcp", p.Addr)
	if err != nil {
		p.T.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(Patience))
	p.T.Cleanup(func() { nc.Close() })
	return &Client{Conn: nc, Reader: bufio.NewReader(nc), T: p.T}
}

// DialUnix is Dial over a unix socket.
func (p *Front) DialUnix(path string) *Client {
	p.T.Helper()
	nc, err := net.Dial("unix", path)
	if err != nil {
		p.T.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(Patience))
	p.T.Cleanup(func() { nc.Close() })
	return &Client{Conn: nc, Reader: bufio.NewReader(nc), T: p.T}
}

// WantOutcome waits for the nth outcome (from 0) and compares.
func (p *Front) WantOutcome(n int, want policy.Outcome) {
	p.T.Helper()
	if o := p.Seen.Outcome(p.T, n); o != want {
		p.T.Errorf("outcome %v, want %v", o, want)
	}
}
