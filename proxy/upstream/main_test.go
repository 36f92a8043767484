package upstream

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience of tests with real sockets for what must come soon.
const testTimeout = 10 * time.Second

// alwaysChecked makes TryPooled look at the connection however short it was idle.
var alwaysChecked = GetOptions{MaxIdle: time.Hour}

// server listens and hands out what it accepts.
type server struct {
	t    *testing.T
	addr net.Addr
	got  chan net.Conn
}

func listen(t *testing.T, network, address string) *server {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, addr: l.Addr(), got: make(chan net.Conn, 1024)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.got <- c
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
		close(s.got)
		for c := range s.got {
			_ = c.Close()
		}
	})
	return s
}

// accept gives the server's end of the next connection.
func (s *server) accept() net.Conn {
	s.t.Helper()
	select {
	case c := <-s.got:
		s.t.Cleanup(func() { _ = c.Close() })
		return c
	case <-time.After(testTimeout):
		s.t.Fatal("nobody connected")
		return nil
	}
}

func (s *server) target() Target {
	return Target{Network: s.addr.Network(), Address: s.addr.String()}
}

func tcpServer(t *testing.T) *server { return listen(t, "tcp", "127.0.0.1:0") }

func unixServer(t *testing.T) *server {
	return listen(t, "unix", filepath.Join(t.TempDir(), "s"))
}

func makePool(t *testing.T, target Target, o Options) *Pool {
	t.Helper()
	p := NewPool(target, o)
	t.Cleanup(p.Close)
	return p
}

// makeGroup makes a group that takes the first of what there is to choose from.
func makeGroup(t *testing.T, target Target, o Options) *Group {
	t.Helper()
	g := NewGroup(target, o)
	g.random = func(uint32) uint32 { return 0 }
	t.Cleanup(g.Close)
	return g
}

// getter gives connections: a pool or a group.
type getter interface {
	Get(context.Context, GetOptions) (*Conn, error)
}

// get must succeed.
func get(t *testing.T, p getter, o GetOptions) *Conn {
	t.Helper()
	o.DialTimeout = cmp.Or(o.DialTimeout, testTimeout)
	c, err := p.Get(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// fail must not succeed and gives the error's kind.
func fail(t *testing.T, p getter, ctx context.Context, o GetOptions) *DialError {
	t.Helper()
	o.DialTimeout = cmp.Or(o.DialTimeout, testTimeout)
	c, err := p.Get(ctx, o)
	if err == nil {
		_ = c.Close()
		t.Fatal("Get succeeded")
	}
	var d *DialError
	if !errors.As(err, &d) {
		t.Fatalf("Get gave a %T, want *DialError: %v", err, err)
	}
	return d
}

// awaitPeeked waits until a look at c, which is held, brings something.
func awaitPeeked(t *testing.T, c *Conn) idleState {
	t.Helper()
	for end := time.Now().Add(testTimeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if f := c.checkIdle(); f != idleOpen {
			return f
		}
	}
	t.Fatal("nothing arrived")
	return idleOpen
}

func addrs(s ...string) []netip.Addr {
	var a []netip.Addr
	for _, s := range s {
		a = append(a, netip.MustParseAddr(s))
	}
	return a
}

// resolving gives a target of name:port whose name stands for ips.
func resolving(port int, ips ...string) Target {
	return Target{
		Network: "tcp", Address: net.JoinHostPort("app.test", strconv.Itoa(port)),
		Resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
			if host != "app.test" {
				return nil, errors.New("asked for " + host)
			}
			return addrs(ips...), nil
		},
	}
}

// memoryConn is a connection without network; SyscallConn leads to a real socket
// whose other end the test holds, so that looks work under a fake clock.
type memoryConn struct {
	net.Conn
	fd, far int
}

func newMemoryConn(t *testing.T) *memoryConn {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	m := &memoryConn{Conn: near, fd: fds[0], far: fds[1]}
	t.Cleanup(func() {
		_ = near.Close()
		_ = far.Close()
		_ = syscall.Close(m.fd)
		m.hangUp()
	})
	return m
}

// hangUp is the upstream closing the connection.
func (m *memoryConn) hangUp() {
	if m.far >= 0 {
		_ = syscall.Close(m.far)
		m.far = -1
	}
}

func (m *memoryConn) SyscallConn() (syscall.RawConn, error) { return memoryRaw(m.fd), nil }

type memoryRaw int

func (r memoryRaw) Control(f func(uintptr)) error  { f(uintptr(r)); return nil }
func (r memoryRaw) Read(func(uintptr) bool) error  { return errors.ErrUnsupported }
func (r memoryRaw) Write(func(uintptr) bool) error { return errors.ErrUnsupported }

// inMemory gives a target whose dials make memory connections, the newest last in made.
func inMemory(t *testing.T, made *[]*memoryConn) Target {
	return Target{Network: "tcp", Address: "memory:1",
		Dial: func(context.Context, string, string) (net.Conn, error) {
			m := newMemoryConn(t)
			*made = append(*made, m)
			return m, nil
		}}
}

// watchedConn is a memoryConn that calls onCheck before each check of its socket.
type watchedConn struct {
	*memoryConn
	onCheck func()
}

func (w watchedConn) SyscallConn() (syscall.RawConn, error) {
	return watchedRaw{memoryRaw(w.fd), w.onCheck}, nil
}

type watchedRaw struct {
	memoryRaw
	onCheck func()
}

func (r watchedRaw) Control(f func(uintptr)) error {
	r.onCheck()
	return r.memoryRaw.Control(f)
}
