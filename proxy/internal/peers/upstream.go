package peers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// Upstream is a TCP server of the test: every connection is handled by
// handle, in order of arrival numbered from 1. Sends counts the requests
// that were read by Conn.Head.
type Upstream struct {
	net.Listener
	mu    sync.Mutex
	conns int
	heads []string
	wg    sync.WaitGroup
	open  map[net.Conn]struct{}
}

// Conn is one connection at the fake upstream.
type Conn struct {
	net.Conn
	*bufio.Reader
	N  int // the number of the connection, from 1
	Up *Upstream
	T  testing.TB
}

func (c *Conn) Read(p []byte) (int, error) { return c.Reader.Read(p) }

// StartUpstream serves each connection with handle until the test ends.
func StartUpstream(t testing.TB, handle func(c *Conn)) *Upstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ServeListener(t, l, handle)
}

// ServeListener is StartUpstream on a listener of the test's own.
func ServeListener(t testing.TB, l net.Listener, handle func(c *Conn)) *Upstream {
	u := &Upstream{Listener: l, open: map[net.Conn]struct{}{}}
	u.wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			u.Serve(t, nc, handle)
		}
	})
	t.Cleanup(u.Stop)
	return u
}

// Serve handles one connection.
func (u *Upstream) Serve(t testing.TB, nc net.Conn, handle func(c *Conn)) {
	u.mu.Lock()
	u.conns++
	c := &Conn{Conn: nc, Reader: bufio.NewReader(nc), N: u.conns, Up: u, T: t}
	u.open[nc] = struct{}{}
	u.mu.Unlock()
	u.wg.Go(func() {
		defer func() {
			nc.Close()
			u.mu.Lock()
			delete(u.open, nc)
			u.mu.Unlock()
		}()
		handle(c)
	})
}

// Stop closes the listener and all connections, and waits until they have been handled.
func (u *Upstream) Stop() {
	u.Close()
	u.CloseConns()
	u.wg.Wait()
}

// CloseConns ends all connections.
func (u *Upstream) CloseConns() { u.Each(func(c net.Conn) { c.Close() }) }

// Each calls f for every open connection.
func (u *Upstream) Each(f func(c net.Conn)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for c := range u.open {
		f(c)
	}
}

// Opened returns how many connections are open.
func (u *Upstream) Opened() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.open)
}

// Note counts headers as those of a request that has arrived.
func (u *Upstream) Note(headers string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.heads = append(u.heads, headers)
}

// NewUpstreamInMemory returns one without a listener; its connections are given to Serve.
func NewUpstreamInMemory() *Upstream { return &Upstream{open: map[net.Conn]struct{}{}} }

// Wait waits until all connections have been handled, and so after the listener was closed.
func (u *Upstream) Wait() { u.wg.Wait() }

// Sends is how many request heads have arrived.
func (u *Upstream) Sends() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.heads)
}

// Head gives the nth request headers (from 0), with its final empty line.
func (u *Upstream) Head(n int) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n >= len(u.heads) {
		return ""
	}
	return u.heads[n]
}

// Connections is how many connections there were.
func (u *Upstream) Connections() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.conns
}

// Head reads one request headers; "" when the connection ended.
func (c *Conn) Head() string {
	var b strings.Builder
	for {
		line, err := c.ReadString('\n')
		b.WriteString(line)
		if err != nil {
			return ""
		}
		if line == "\r\n" {
			break
		}
	}
	c.Up.Note(b.String())
	return b.String()
}

// Body reads n bytes.
func (c *Conn) Body(n int) string {
	b := make([]byte, n)
	if _, err := io.ReadFull(c.Reader, b); err != nil {
		return ""
	}
	return string(b)
}

// Say writes s as it is.
func (c *Conn) Say(format string, a ...any) {
	if len(a) > 0 {
		format = fmt.Sprintf(format, a...)
	}
	_, _ = io.WriteString(c.Conn, format)
}

// Reset closes so that the other side sees a reset.
func (c *Conn) Reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok { // in memory there is only one way to close
		_ = tcp.SetLinger(0)
	}
	c.Conn.Close()
}

// DiscardBody reads the body that head announces.
func DiscardBody(c *Conn, headers string) []byte {
	req, err := http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader(headers), c.Reader)))
	if err != nil {
		return nil
	}
	if req.ContentLength == 0 {
		return nil
	}
	if req.ContentLength > 0 {
		return []byte(c.Body(int(req.ContentLength)))
	}
	var all []byte
	for { // chunked, as the proxy writes it
		var size int
		line, err := c.ReadString('\n')
		if err != nil {
			return all
		}
		fmt.Sscanf(line, "%x", &size)
		if size == 0 {
			for line != "\r\n" && err == nil {
				line, err = c.ReadString('\n')
			}
			return all
		}
		all = append(all, c.Body(size)...)
		c.Body(2)
	}
}

// Dialled is an upstream's end of a connection: LocalAddr is what was dialled.
type Dialled struct {
	net.Conn
	Address string
}

func (d Dialled) LocalAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(d.Address))
}

// Resolve finds the same address for every name.
func Resolve(context.Context, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
}

// EndOfInput reads until the connection ends and gives what came and how it ended.
func (c *Conn) EndOfInput() (string, error) {
	b, err := io.ReadAll(c.Reader)
	return string(b), err
}

// Stays waits for d and reports whether the other side is still there.
func (c *Conn) Stays(d time.Duration) bool {
	if d == 0 {
		return true
	}
	_ = c.SetReadDeadline(time.Now().Add(d))
	defer c.SetReadDeadline(time.Time{})
	_, err := c.Peek(1)
	return rawsocket.IsTimeout(err)
}

// WantFrom checks whom the nth request was forwarded for.
func (u *Upstream) WantFrom(t *testing.T, n int, addr string) {
	t.Helper()
	if !strings.Contains(u.Head(n), "X-Forwarded-For: "+addr+"\r\n") {
		t.Errorf("request %d is not from %s:\n%s", n, addr, u.Head(n))
	}
}
