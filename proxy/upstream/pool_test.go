package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

func TestPoolHandsOutTheLastReleasedFirst(t *testing.T) {
	s := tcpServer(t)
	p := makePool(t, s.target(), Options{})
	a, b := get(t, p, GetOptions{}), get(t, p, GetOptions{})
	if a.Reused || a.Uses != 1 || a.Addr != s.addr.String() {
		t.Fatalf("first use: %+v", a)
	}
	a.Release(0)
	b.Release(0)
	if c := p.TryPooled(&alwaysChecked); c != b {
		t.Fatal("the first one released came first")
	}
	if c := get(t, p, alwaysChecked); c != a || !c.Reused || c.Uses != 2 {
		t.Fatalf("second use: %+v", c)
	}
	if c := p.TryPooled(&alwaysChecked); c != nil {
		t.Fatal("an empty pool gave a connection")
	}
}

func TestPoolUsesTheTimeItIsGiven(t *testing.T) {
	p := makePool(t, tcpServer(t).target(), Options{Start: time.Now().Add(-time.Hour)})
	c := get(t, p, GetOptions{})
	now := p.now()
	if now < time.Hour {
		t.Fatalf("the clock shows %v an hour after its start", now)
	}
	c.ReleaseAt(now, 0)
	o := GetOptions{MaxIdle: time.Second, Now: now + time.Second + 1}
	if p.TryPooled(&o) != nil {
		t.Error("it was idle for longer than asked")
	}
	o.Now--
	if p.TryPooled(&o) != nil {
		t.Error("told an earlier time, the pool forgot the later one")
	}
	o.MaxIdle++
	if p.TryPooled(&o) != c {
		t.Error("it was idle for no longer than asked")
	}
}

func TestPooledConnectionCarriesBytesAndNoOldDeadline(t *testing.T) {
	for name, s := range map[string]*server{"tcp": tcpServer(t), "unix": unixServer(t)} {
		t.Run(name, func(t *testing.T) {
			p := makePool(t, s.target(), Options{})
			c := get(t, p, GetOptions{})
			if err := c.SetDeadline(time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
			c.Release(0)
			c = get(t, p, alwaysChecked)
			far := s.accept()
			if _, err := io.WriteString(c, "ping"); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 4)
			if _, err := io.ReadFull(far, buf); err != nil || string(buf) != "ping" {
				t.Fatalf("the upstream read %q, %v", buf, err)
			}
			if c.Raw() != rawsocket.Unwrap(c.Conn) || c.Raw() == nil || c.TLS() != nil {
				t.Error("Raw is not the plain connection")
			}
		})
	}
}

func TestFreshNeverTakesFromThePool(t *testing.T) {
	p := makePool(t, tcpServer(t).target(), Options{})
	a := get(t, p, GetOptions{})
	a.Release(0)
	if c := p.TryPooled(&GetOptions{Fresh: true}); c != nil {
		t.Fatal("TryPooled gave a pooled one")
	}
	if c := get(t, p, GetOptions{Fresh: true}); c == a || c.Reused {
		t.Fatal("Get gave a pooled one")
	}
	if n := p.Stats().Idle; n != 1 {
		t.Fatalf("%d idle, want 1", n)
	}
}

// What an upstream does to an idle connection, and what the pool makes of it.
func TestIdleConnectionIsCheckedBeforeUse(t *testing.T) {
	for _, c := range []struct {
		name                    string
		act                     func(net.Conn)
		idleCloses, unsolicited uint64
	}{
		{"closes", func(far net.Conn) { _ = far.Close() }, 1, 0},
		{"closes its half", func(far net.Conn) { _ = far.(*net.TCPConn).CloseWrite() }, 1, 0},
		{"resets", func(far net.Conn) { _ = far.(*net.TCPConn).SetLinger(0); _ = far.Close() }, 1, 0},
		{"says 408", func(far net.Conn) { _, _ = io.WriteString(far, "HTTP/1.1 408 Request Timeout\r\n\r\n") }, 1, 0},
		{"says 408 and closes", func(far net.Conn) { _, _ = io.WriteString(far, "HTTP/1.0 408 x\r\n\r\n"); _ = far.Close() }, 1, 0},
		{"answers what nobody asked", func(far net.Conn) { _, _ = io.WriteString(far, "HTTP/1.1 200 OK\r\n\r\n") }, 0, 1},
		{"says half a line", func(far net.Conn) { _, _ = io.WriteString(far, "HTTP/1.1 40") }, 0, 1},
		{"says less than a version", func(far net.Conn) { _, _ = io.WriteString(far, "HTTP/1.") }, 0, 1},
		{"says one byte", func(far net.Conn) { _, _ = io.WriteString(far, "\n") }, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := tcpServer(t)
			p := makePool(t, s.target(), Options{})
			conn := get(t, p, GetOptions{})
			c.act(s.accept())
			awaitPeeked(t, conn)
			conn.Release(0)
			if got := p.TryPooled(&alwaysChecked); got != nil {
				t.Fatal("the connection was handed out")
			}
			got := p.Stats()
			if got.IdleCloses != c.idleCloses || got.Unsolicited != c.unsolicited || got.Idle+got.Active != 0 || got.Reuses != 0 {
				t.Fatalf("%+v", got)
			}
			if _, err := conn.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
				t.Fatalf("the discarded connection is still open: %v", err)
			}
		})
	}
}

// A scrape may come at any time: no counter falls, also if the connection that was taken turns out
// to be closed.
func TestCountersNeverFall(t *testing.T) {
	var g *Group
	var made []*memoryConn
	last := map[string]uint64{}
	scrape := func() {
		if g == nil {
			return
		}
		now := map[string]uint64{"reuses": g.Stats().Reuses}
		for _, e := range g.Endpoints().Each {
			now["attempts at "+e.Addr] = e.Attempts
		}
		for name, n := range now {
			if n < last[name] {
				t.Errorf("%s fell from %d to %d", name, last[name], n)
			}
			last[name] = n
		}
	}
	target := resolving(80, "10.0.0.1", "10.0.0.2")
	target.Dial = func(context.Context, string, string) (net.Conn, error) {
		made = append(made, newMemoryConn(t))
		return watchedConn{made[len(made)-1], scrape}, nil
	}
	g = makeGroup(t, target, Options{})
	for range 3 {
		get(t, g, GetOptions{Fresh: true}).Release(0)
	}
	for _, c := range made {
		if got := get(t, g, alwaysChecked); !got.Reused {
			t.Error("no connection was reused")
		} else {
			got.Release(0)
		}
		c.hangUp()
		scrape()
	}
	get(t, g, alwaysChecked).Release(0)
	scrape()
	if s := g.Stats(); s.IdleCloses != 3 || s.Reuses != 3 || s.Dials != 4 {
		t.Errorf("%+v", s)
	}
}

func TestUnixIdleCloseIsSeen(t *testing.T) {
	s := unixServer(t)
	p := makePool(t, s.target(), Options{})
	c := get(t, p, GetOptions{})
	_ = s.accept().Close()
	awaitPeeked(t, c)
	c.Release(0)
	if p.TryPooled(&alwaysChecked) != nil || p.Stats().IdleCloses != 1 {
		t.Fatalf("not seen: %+v", p.Stats())
	}
}

func TestAfterARestartTheNextOpenConnectionIsFoundOrDialled(t *testing.T) {
	s := tcpServer(t)
	p := makePool(t, s.target(), Options{})
	var conns []*Conn
	var far []net.Conn
	for range 20 {
		conns = append(conns, get(t, p, GetOptions{}))
		far = append(far, s.accept())
	}
	for i, c := range conns {
		if i > 0 { // the oldest one alone stays open
			_ = far[i].Close()
			awaitPeeked(t, c)
		}
		c.Release(0)
	}
	if c := get(t, p, alwaysChecked); c != conns[0] {
		t.Fatal("the one open connection was not found")
	}
	if c := get(t, p, alwaysChecked); c.Reused {
		t.Fatal("a closed connection was handed out")
	}
	if got := p.Stats(); got.IdleCloses != 19 || got.Active != 2 || got.Dials != 21 {
		t.Fatalf("%+v", got)
	}
}

func TestReleaseClosesWhatMustNotBeReused(t *testing.T) {
	s := tcpServer(t)
	t.Run("the pool is full", func(t *testing.T) {
		p := makePool(t, s.target(), Options{IdleConns: 1})
		a, b := get(t, p, GetOptions{}), get(t, p, GetOptions{})
		a.Release(0)
		b.Release(0)
		if p.Stats().Idle != 1 {
			t.Fatalf("%+v", p.Stats())
		}
		get(t, p, alwaysChecked)
		wantClosed(t, p, b)
	})
	t.Run("the pool is closed", func(t *testing.T) {
		p := makePool(t, s.target(), Options{})
		c := get(t, p, GetOptions{})
		p.Close()
		c.Release(0)
		wantClosed(t, p, c)
	})
}

func wantClosed(t *testing.T, p *Pool, c *Conn) {
	t.Helper()
	if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the connection is open: %v", err)
	}
	if s := p.Stats(); s.Idle != 0 {
		t.Errorf("it is in the pool: %+v", s)
	}
}

func TestEndingTwiceDoesNothing(t *testing.T) {
	p := makePool(t, tcpServer(t).target(), Options{})
	ends := map[string]func(*Conn){
		"Release": func(c *Conn) { c.Release(0) }, "Close": func(c *Conn) { _ = c.Close() },
		"Abort": (*Conn).Abort, "CloseStale": (*Conn).CloseStale,
	}
	for first, end := range ends {
		for second, again := range ends {
			c := get(t, p, GetOptions{Fresh: true})
			end(c)
			before := p.Stats()
			again(c)
			after := p.Stats()
			if before != after {
				t.Errorf("%s after %s: %+v became %+v", second, first, before, after)
			}
		}
	}
	if s := p.Stats(); s.Active != 0 {
		t.Errorf("%d active, want 0", s.Active)
	}
}

func TestCloseEndsInOrderAndAbortResets(t *testing.T) {
	for _, c := range []struct {
		name  string
		s     *server
		end   func(*Conn)
		reset bool
	}{
		{"tcp close", tcpServer(t), func(c *Conn) { _ = c.Close() }, false},
		{"tcp stale", tcpServer(t), (*Conn).CloseStale, false},
		{"tcp abort", tcpServer(t), (*Conn).Abort, true},
		{"unix abort", unixServer(t), (*Conn).Abort, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := makePool(t, c.s.target(), Options{})
			conn := get(t, p, GetOptions{})
			far := c.s.accept()
			c.end(conn)
			_, err := io.ReadAll(far)
			if errors.Is(err, syscall.ECONNRESET) != c.reset || !c.reset && err != nil {
				t.Fatalf("the upstream sees %v", err)
			}
		})
	}
}

func TestAbortEndsAReadInAnotherGoroutine(t *testing.T) {
	s := tcpServer(t)
	p := makePool(t, s.target(), Options{})
	c := get(t, p, GetOptions{})
	ended := make(chan error)
	go func() {
		_, err := c.Read(make([]byte, 1))
		ended <- err
	}()
	c.Abort()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
}

func TestClosedPoolStillDialsButKeepsNothing(t *testing.T) {
	s := tcpServer(t)
	p := makePool(t, s.target(), Options{})
	idle, used := get(t, p, GetOptions{}), get(t, p, GetOptions{})
	idle.Release(0)
	p.Close()
	p.Close()
	wantClosed(t, p, idle)
	if _, err := used.Write([]byte("x")); err != nil {
		t.Fatalf("a connection in use was closed: %v", err)
	}
	get(t, p, GetOptions{}).Release(0)
	if got := p.Stats(); got.Idle != 0 || got.Active != 1 {
		t.Fatalf("%+v", got)
	}
}

func TestStatsCountEveryState(t *testing.T) {
	s := tcpServer(t)
	p := makePool(t, s.target(), Options{})
	a, b := get(t, p, GetOptions{}), get(t, p, GetOptions{})
	a.Release(0)
	got := p.Stats()
	if got.Idle != 1 || got.Active != 1 || got.Dials != 2 || got.Reuses != 0 || got.Dialing != 0 {
		t.Fatalf("%+v", got)
	}
	a = get(t, p, alwaysChecked)
	_ = b.Close()
	a.CloseStale()
	got = p.Stats()
	if got.Idle != 0 || got.Active != 0 || got.Reuses != 1 || got.IdleCloses != 1 {
		t.Fatalf("%+v", got)
	}
	if p.Target().Address != s.addr.String() {
		t.Fatal("Target is not the pool's")
	}
}

// No connection is ever in two hands, while the upstream closes some.
func TestPoolConcurrentUse(t *testing.T) {
	s := tcpServer(t)
	p := makePool(t, s.target(), Options{IdleConns: 4})
	var hands sync.Map // *Conn -> *atomic.Int32
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 100 {
				c, err := p.Get(t.Context(), alwaysChecked)
				if err != nil {
					t.Error(err)
					return
				}
				v, _ := hands.LoadOrStore(c, new(atomic.Int32))
				n := v.(*atomic.Int32)
				if n.Add(1) != 1 {
					t.Error("a connection in two hands")
				}
				if i%10 == g {
					select {
					case far := <-s.got:
						_ = far.Close()
					default:
					}
				}
				n.Add(-1)
				if i%17 == g {
					c.Abort()
				} else {
					c.Release(0)
				}
			}
		})
	}
	all.Wait()
	if got := p.Stats(); got.Active != 0 || got.Idle > 4 || got.Reuses == 0 {
		t.Fatalf("%+v", got)
	}
}

func TestPooledPathDoesNotAllocate(t *testing.T) {
	for _, c := range []struct {
		name string
		s    *server
		o    GetOptions
	}{
		{"tcp, looked at", tcpServer(t), alwaysChecked},
		{"tcp, unseen", tcpServer(t), GetOptions{Unchecked: true}},
		{"unix, looked at", unixServer(t), alwaysChecked},
	} {
		p := makePool(t, c.s.target(), Options{})
		get(t, p, GetOptions{}).Release(0)
		if n := testing.AllocsPerRun(100, func() {
			conn := p.TryPooled(&c.o)
			conn.Release(5 * time.Second)
		}); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
}

func BenchmarkPooled(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	for name, o := range map[string]GetOptions{"unseen": {Unchecked: true}, "looked": alwaysChecked} {
		b.Run(name, func(b *testing.B) {
			p := NewPool(Target{Network: "tcp", Address: l.Addr().String()}, Options{})
			defer p.Close()
			conns := make([]*Conn, 8)
			for i := range conns {
				var err error
				if conns[i], err = p.Get(b.Context(), GetOptions{Fresh: true}); err != nil {
					b.Fatal(err)
				}
			}
			for _, c := range conns {
				c.Release(0)
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					p.TryPooled(&o).Release(5 * time.Second)
				}
			})
		})
	}
}
