package idlepoller

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/retryproxy/retryproxy/proxy/internal/tcptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout only ends a hang.
const testTimeout = time.Minute

// testWaiter notes why it left.
type testWaiter struct {
	left chan Reason
	t    testing.TB
}

func newTestWaiter(t testing.TB) *testWaiter { return &testWaiter{make(chan Reason, 1), t} }

func (g *testWaiter) Wake(reason Reason) {
	select {
	case g.left <- reason:
	default:
		g.t.Error("a guest left twice")
	}
}

// wantReason waits for the guest to leave.
func (g *testWaiter) wantReason(reason Reason) {
	g.t.Helper()
	select {
	case got := <-g.left:
		if got != reason {
			g.t.Errorf("left for %d, want %d", got, reason)
		}
	case <-time.After(testTimeout):
		g.t.Fatalf("did not leave; want %d", reason)
	}
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func raw(t testing.TB, c net.Conn) syscall.RawConn {
	t.Helper()
	r, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// open gives a lot that ends with the test.
func open(t testing.TB) *Poller {
	l := &Poller{}
	t.Cleanup(l.Close)
	return l
}

func add(t testing.TB, l *Poller, c net.Conn, d time.Duration) *testWaiter {
	t.Helper()
	g := newTestWaiter(t)
	if err := l.Add(raw(t, c), time.Now().Add(d), g); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestLeavesForWhatHappensToTheSocket(t *testing.T) {
	for name, happen := range map[string]func(far net.Conn){
		"bytes":    func(far net.Conn) { _, _ = far.Write([]byte("x")) },
		"end":      func(far net.Conn) { _ = far.Close() },
		"half end": func(far net.Conn) { _ = far.(*net.TCPConn).CloseWrite() },
		"reset": func(far net.Conn) {
			_ = far.(*net.TCPConn).SetLinger(0)
			_ = far.Close()
		},
	} {
		for _, before := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				l := open(t)
				near, far := tcptest.Pair(t)
				if before {
					happen(far)
				}
				g := add(t, l, near, time.Hour)
				if !before {
					happen(far)
				}
				g.wantReason(Readable)
				if n := l.Len(); n != 0 {
					t.Errorf("%d are still there", n)
				}
			})
		}
	}
}

// Each leaves at its own time, in whatever order they came, and the one that
// is not due stays.
func TestLeavesWhenDue(t *testing.T) {
	l := open(t)
	var all []*testWaiter
	for _, d := range []time.Duration{time.Hour, 30 * time.Millisecond, 2 * time.Millisecond, 10 * time.Millisecond, -time.Second} {
		near, _ := tcptest.Pair(t)
		all = append(all, add(t, l, near, d))
	}
	for _, g := range all[1:] {
		g.wantReason(DeadlinePassed)
	}
	if n := l.Len(); n != 1 {
		t.Errorf("%d guests left, want 1", n)
	}
	near, far := tcptest.Pair(t) // after the alarms, readiness still wakes
	g := add(t, l, near, time.Hour)
	_, _ = far.Write([]byte("x"))
	g.wantReason(Readable)
	l.Clear()
	all[0].wantReason(Cleared)
}

func TestIsNotDueEarly(t *testing.T) {
	l := open(t)
	near, _ := tcptest.Pair(t)
	began, d := time.Now(), 50*time.Millisecond
	g := add(t, l, near, d)
	g.wantReason(DeadlinePassed)
	if took := time.Since(began); took < d {
		t.Errorf("due after %v, want %v", took, d)
	}
}

func TestTakesNobodyAfterClose(t *testing.T) {
	for _, used := range []bool{false, true} {
		l := &Poller{}
		near, _ := tcptest.Pair(t)
		if used {
			g := add(t, l, near, time.Hour)
			l.Close()
			g.wantReason(Cleared)
		}
		l.Close()
		if err := l.Add(raw(t, near), time.Now().Add(time.Hour), newTestWaiter(t)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("used %v: %v", used, err)
		}
	}
}

func TestLeavesNoDescriptor(t *testing.T) {
	count := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	near, _ := tcptest.Pair(t)
	before := count()
	l := &Poller{}
	add(t, l, near, time.Hour)
	if count() <= before {
		t.Error("no descriptor was opened, so nothing is tested")
	}
	l.Close()
	if n := count(); n != before {
		t.Errorf("%d descriptors, %d before", n, before)
	}
}

func TestRefusesAClosedSocket(t *testing.T) {
	l := open(t)
	near, _ := tcptest.Pair(t)
	r := raw(t, near)
	near.Close()
	if err := l.Add(r, time.Now().Add(time.Hour), newTestWaiter(t)); err == nil {
		t.Error("taken")
	}
	if n := l.Len(); n != 0 {
		t.Errorf("%d guests", n)
	}
}

// More than one call of epoll_wait can tell of leave at once, and nobody is left behind.
func TestManyAtOnce(t *testing.T) {
	l := open(t)
	var all []*testWaiter
	var fars []net.Conn
	for range 5 * maxEvents {
		near, far := tcptest.Pair(t)
		all, fars = append(all, add(t, l, near, time.Hour)), append(fars, far)
	}
	for _, far := range fars {
		_, _ = far.Write([]byte("x"))
	}
	for _, g := range all {
		g.wantReason(Readable)
	}
}

// player is a connection that is parked over and over while its other side
// writes, and Clear and times come in between. Each byte sent has to be read.
type player struct {
	lot    *Poller
	near   net.Conn
	raw    syscall.RawConn
	read   int64
	left   [Cleared + 1]*atomic.Int64
	random *rand.Rand
	end    func(err error)
	wg     *sync.WaitGroup
}

// Wake does what a server does: a goroutine reads, then parks again.
func (p *player) Wake(reason Reason) {
	p.left[reason].Add(1)
	p.wg.Go(p.turn)
}

func (p *player) turn() {
	var b [64]byte
	for {
		_ = p.near.SetReadDeadline(time.Now().Add(time.Duration(p.random.IntN(200)) * time.Microsecond))
		n, err := p.near.Read(b[:p.random.IntN(len(b))+1])
		p.read += int64(n)
		switch {
		case err == io.EOF:
			p.end(nil)
			return
		case err == nil && p.random.IntN(2) == 0:
			continue
		}
		until := time.Now().Add(time.Duration(p.random.IntN(20)) * time.Millisecond)
		if p.random.IntN(2) == 0 {
			until = until.Add(time.Hour) // only its bytes can wake this one
		}
		if err := p.lot.Add(p.raw, until, p); err != nil {
			p.end(err)
		}
		return
	}
}

// TestNoByteIsSleptThrough parks, writes, clears, ends and closes at random.
func TestNoByteIsSleptThrough(t *testing.T) {
	const conns, writes = 40, 100
	l := open(t)
	var left [Cleared + 1]*atomic.Int64
	for i := range left {
		left[i] = &atomic.Int64{}
	}
	var wg, playing sync.WaitGroup
	for i := range conns {
		near, far := tcptest.Pair(t)
		var sent atomic.Int64
		var once sync.Once
		playing.Add(1)
		p := &player{lot: l, near: near, raw: raw(t, near), left: left, random: rand.New(rand.NewPCG(1, uint64(i))), wg: &wg}
		p.end = func(err error) {
			once.Do(func() {
				defer playing.Done()
				if err != nil || p.read != sent.Load() {
					t.Errorf("%d bytes read of %d, %v", p.read, sent.Load(), err)
				}
			})
		}
		wg.Go(p.turn)
		wg.Go(func() {
			random := rand.New(rand.NewPCG(2, uint64(i)))
			for n, end := 0, time.Now().Add(testTimeout); n < writes || !often(&left) && time.Now().Before(end); n++ {
				n := random.IntN(32) + 1
				sent.Add(int64(n))
				_, _ = far.Write(make([]byte, n))
				time.Sleep(time.Duration(random.IntN(300)) * time.Microsecond)
			}
			_ = far.CloseWrite()
		})
	}
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(3 * time.Millisecond):
				l.Clear()
			}
		}
	})
	ended := make(chan struct{})
	go func() { playing.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(testTimeout):
		t.Fatalf("somebody sleeps: %d guests", l.Len())
	}
	close(stop)
	wg.Wait()
	t.Logf("left %d times for bytes, %d for the time, %d for Clear", left[Readable].Load(), left[DeadlinePassed].Load(), left[Cleared].Load())
	if !often(&left) {
		t.Error("not all ways to leave were taken")
	}
}

// often says whether every way to leave was taken some times.
func often(left *[Cleared + 1]*atomic.Int64) bool {
	for _, n := range left {
		if n.Load() < 20 {
			return false
		}
	}
	return true
}

// hook is a guest whose leaving the test does something with.
type hook func(Reason)

func (h hook) Wake(reason Reason) { h(reason) }

// The kernel has told of two sockets. While the first is heard, the second is
// closed and its descriptor goes to a new one: the news is not that one's.
func TestOldNewsOfADescriptorUsedAgain(t *testing.T) {
	const rounds = 20
	again := 0
	for range rounds {
		l, ln := &Poller{}, listen(t)
		breaker, a, b := make(chan struct{}), make(chan struct{}), newTestWaiter(t)
		blocker, blockersEnd := tcptest.Pair(t)
		first, firstsEnd := tcptest.Pair(t)
		second, secondsEnd := tcptest.Pair(t)
		nextsEnd, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		quiet := newTestWaiter(t)
		swap := func(Reason) { // Clear here is the Lot's goroutine's own, so it comes between the news of both
			defer close(a)
			l.Clear()
			fd := number(t, second)
			second.Close()
			next, err := ln.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { next.Close() })
			if number(t, next) == fd {
				again++
			}
			if err := l.Add(raw(t, next), time.Now().Add(time.Hour), quiet); err != nil {
				t.Error(err)
			}
		}
		mustAdd(t, l, blocker, hook(func(Reason) { <-breaker }))
		_, _ = blockersEnd.Write([]byte("x"))
		for l.Len() > 0 { // until the goroutine stands at the breaker
			time.Sleep(time.Millisecond)
		}
		_, _ = firstsEnd.Write([]byte("x"))
		_, _ = secondsEnd.Write([]byte("x"))
		awaitBytes(t, first)
		awaitBytes(t, second)
		mustAdd(t, l, first, hook(swap)) // told of in the order in which they come
		mustAdd(t, l, second, b)
		close(breaker)
		<-a
		b.wantReason(Cleared)
		near, far := tcptest.Pair(t) // what it hears now comes after the old news
		after := add(t, l, near, time.Hour)
		_, _ = far.Write([]byte("x"))
		after.wantReason(Readable)
		l.Close()
		quiet.wantReason(Cleared)
		nextsEnd.Close()
	}
	if again == 0 {
		t.Error("no descriptor was used again, so nothing was tested")
	}
}

func mustAdd(t *testing.T, l *Poller, c net.Conn, g Waiter) {
	t.Helper()
	if err := l.Add(raw(t, c), time.Now().Add(time.Hour), g); err != nil {
		t.Fatal(err)
	}
}

// awaitBytes waits until c has something to read.
func awaitBytes(t *testing.T, c net.Conn) {
	t.Helper()
	if err := raw(t, c).Read(func(fd uintptr) bool {
		n, _, _ := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return n > 0
	}); err != nil {
		t.Error(err)
	}
}

// number is a connection's descriptor.
func number(t *testing.T, c net.Conn) (fd uintptr) {
	if err := raw(t, c).Control(func(n uintptr) { fd = n }); err != nil {
		t.Error(err)
	}
	return fd
}

// Close comes while others park and leave; everybody who was taken leaves.
func TestCloseWhileParking(t *testing.T) {
	near, _ := tcptest.Pair(t)
	r := raw(t, near)
	_ = near.SetReadDeadline(time.Now())
	for range 50 {
		l := &Poller{}
		var taken, left atomic.Int64
		var wg sync.WaitGroup
		begun := make(chan struct{})
		var once sync.Once
		for range 4 {
			wg.Go(func() {
				for {
					if err := l.Add(r, time.Now().Add(time.Hour), counter{&left}); errors.Is(err, syscall.EEXIST) {
						continue // one socket, several that want to park it
					} else if err != nil {
						return
					}
					taken.Add(1)
					once.Do(func() { close(begun) })
				}
			})
		}
		wg.Go(func() {
			for range 10 {
				l.Clear()
			}
		})
		<-begun
		l.Close()
		wg.Wait()
		if l.Len() != 0 || taken.Load() != left.Load() {
			t.Fatalf("%d were taken, %d left, %d are there", taken.Load(), left.Load(), l.Len())
		}
	}
}

type counter struct{ n *atomic.Int64 }

func (c counter) Wake(Reason) { c.n.Add(1) }
