package rawsocket

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/retryproxy/retryproxy/internal/needs"
)

func TestIsTCPClosed(t *testing.T) {
	for name, tc := range map[string]struct {
		theirs func(c net.Conn)
		over   bool
	}{
		"open":   {func(net.Conn) {}, false},
		"ended":  {func(c net.Conn) { _ = c.(*net.TCPConn).CloseWrite() }, false},
		"closed": {func(c net.Conn) { _ = c.Close() }, false},
		"reset":  {func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); _ = c.Close() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, theirs := pair(t, "tcp")
			tc.theirs(theirs)
			if name != "open" {
				_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
				_, _ = c.Read(make([]byte, 1))
			}
			if IsTCPClosed(c) != tc.over || IsTCPClosed(Unwrap(c)) != tc.over {
				t.Errorf("over: %v and %v, want %v", IsTCPClosed(c), IsTCPClosed(Unwrap(c)), tc.over)
			}
		})
	}
	t.Run("not TCP", func(t *testing.T) {
		c, theirs := pair(t, "unix")
		_ = theirs.Close()
		_, _ = io.ReadAll(c)
		if IsTCPClosed(c) || IsTCPClosed(nil) {
			t.Error("over")
		}
	})
}

func TestUnacknowledged(t *testing.T) {
	needs.NetAdmin(t)
	c, theirs := pair(t, "tcp")
	before := Acked(c)
	_, _ = c.Write([]byte("x"))
	until(t, func() bool { return Acked(c) == before+1 }, "not acknowledged")
	if Unacknowledged(c) {
		t.Fatal("acknowledged, but reported as not")
	}
	if err := deafen(theirs); err != nil {
		t.Fatal(err)
	}
	EndUnacknowledged(c)
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(make([]byte, 32<<20))
		wrote <- err
	}()
	w := c.(*Conn)
	until(t, w.out.waiting.Load, "the write does not wait")
	if Unacknowledged(c) || Silent(c) {
		t.Fatal("reported before it was sent again")
	}
	w.checkAcks()
	silent := false
	until(t, func() bool {
		silent = silent || Silent(Unwrap(c)) && !Unacknowledged(Unwrap(c))
		return Unacknowledged(Unwrap(c))
	}, "never reported")
	if !silent {
		t.Error("it is not known to be silent before it is known to be gone")
	}
	select {
	case err := <-wrote:
		t.Fatalf("the write ended before the check: %v", err)
	default:
	}
	w.checkAcks()
	if err := <-wrote; !IsTimeout(err) {
		t.Errorf("the write ended by %v", err)
	}
	if w.out.waiting.Load() {
		t.Error("a write that ended waits")
	}
}

// until waits until ok is true.
func until(t *testing.T, ok func() bool, otherwise string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(otherwise)
		}
	}
}

// A peer that only takes its time has all of it, however often it is looked after.
func TestASlowPeerIsNotTakenForOneThatVanished(t *testing.T) {
	c, theirs := pair(t, "tcp")
	EndUnacknowledged(c)
	w := c.(*Conn)
	w.checkAcks() // before any write
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(make([]byte, 32<<20))
		wrote <- err
	}()
	until(t, w.out.waiting.Load, "the write does not wait")
	for range 3 {
		w.checkAcks()
	}
	if n, err := io.CopyN(io.Discard, theirs, 32<<20); err != nil {
		t.Errorf("%d bytes came, %v", n, err)
	}
	if err := <-wrote; err != nil || w.out.waiting.Load() {
		t.Errorf("%v, waiting %v", err, w.out.waiting.Load())
	}
	if w.out.acks.Stop() {
		t.Error("the check goes on after the write")
	}
	EndUnacknowledged(theirs) // which is not wrapped
}

// What the kernel counts of a connection.
func TestWhatTheKernelCounts(t *testing.T) {
	c, theirs := pair(t, "tcp")
	raw := rawOf(t, c)
	if Unread(raw) != 0 || Unsent(raw) || IsTCPClosed(c) || Silent(c) {
		t.Errorf("at first: %d unread, unsent %v", Unread(raw), Unsent(raw))
	}
	acked := Acked(c) // the handshake
	before, ok := Moved(raw)
	if !ok {
		t.Fatal("not TCP")
	}
	_, _ = c.Write([]byte("abcdef"))
	_, _ = theirs.Write([]byte("abcd"))
	until(t, func() bool { return Acked(c) == acked+6 }, "6 bytes are not acknowledged")
	until(t, func() bool { return Unread(raw) == 4 }, "4 bytes are not unread")
	if n, _ := Moved(raw); n != before+10 {
		t.Errorf("%d bytes moved", n-before)
	}
	if Unread(rawOf(t, theirs)) != 6 {
		t.Error("the other side has none of the bytes")
	}
	_, _ = io.ReadFull(c, make([]byte, 4))
	if n := Unread(raw); n != 0 {
		t.Errorf("%d bytes unread after they were read", n)
	}
	_ = c.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := c.Write(make([]byte, 32<<20)); !IsTimeout(err) || !Unsent(raw) {
		t.Errorf("%v, and nothing is unsent although the peer has no room", err)
	}
}

// What is no TCP has no such counts.
func TestWhatTheKernelDoesNotCount(t *testing.T) {
	c, theirs := pair(t, "unix")
	_, _ = theirs.Write([]byte("x"))
	if _, ok := Moved(rawOf(t, c)); ok || Acked(c) != 0 || Silent(c) || Unacknowledged(c) {
		t.Error("counts of a unix socket")
	}
	if n := Unread(rawOf(t, c)); n != 1 {
		t.Errorf("%d bytes unread", n)
	}
	p, q := net.Pipe()
	_, _ = p.Close(), q.Close()
	if Acked(p) != 0 || Silent(p) || Unacknowledged(p) || IsTCPClosed(p) {
		t.Error("counts of a pipe")
	}
	_ = c.Close()
	if _, ok := Moved(rawOf(t, Unwrap(c))); ok || Unread(rawOf(t, Unwrap(c))) != 0 || Acked(c) != 0 {
		t.Error("counts of a closed socket")
	}
}

// The kernel buffers little for a peer without room if that is asked for.
func TestUnsentBytesAreBounded(t *testing.T) {
	fill := func(bound bool) (n int) {
		c, _ := pair(t, "tcp")
		if bound {
			BoundUnsent(rawOf(t, c), 16<<10)
		}
		for p := random(64 << 10); ; {
			k, err := c.(*Conn).TryWrite(p)
			if err != nil {
				t.Fatal(err)
			}
			if n += k; k == 0 {
				return n
			}
		}
	}
	if all, few := fill(false), fill(true); few >= all {
		t.Errorf("the kernel takes %d bytes, and %d of them with a bound", all, few)
	}
}

// A peer of a socket with a bound sends smaller segments.
func TestSegmentsAreBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error { BoundSegments(raw, 1000); return nil }}
	c, err := d.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	if info := tcpInfo(theirs); info == nil || info.Snd_mss > 1000 {
		t.Errorf("%+v", info)
	}
}

// spliceWorks moves a byte through a pipe by the system call, and reports whether the system let it.
func spliceWorks(t *testing.T) bool {
	c, theirs := pair(t, "unix")
	_, _ = theirs.Write([]byte("x"))
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	defer closeAll(pipe[:]...)
	works := false
	_ = rawOf(t, c).Control(func(fd uintptr) {
		n, err := unix.Splice(int(fd), nil, pipe[1], nil, 1, unix.SPLICE_F_NONBLOCK)
		works = n == 1 && err == nil
	})
	return works
}

// Splice is used if the system has it, until the system refuses one.
func TestSpliceIsUsedUntilItIsRefused(t *testing.T) {
	works := spliceWorks(t)
	if got := trySplice(); got != works {
		t.Errorf("it is refused: %v, and seems to be: %v", !works, !got)
	}
	if CanSplice() != works {
		t.Errorf("it is used: %v", CanSplice())
	}
	defer spliceRefused.Store(!works)
	for name, tc := range map[string]struct {
		err     error
		refused bool
	}{
		"none":             {nil, false},
		"a peer's end":     {unix.ECONNRESET, false},
		"not yet":          {unix.EAGAIN, false},
		"by a filter":      {unix.EPERM, true},
		"by a sandbox":     {unix.ENOSYS, true},
		"by the socket":    {unix.EINVAL, true},
		"wrapped":          {&net.OpError{Err: unix.ENOSYS}, true},
		"after a deadline": {os.ErrDeadlineExceeded, false},
	} {
		spliceRefused.Store(false)
		if NoteSplice(tc.err); CanSplice() == tc.refused {
			t.Errorf("%s: it is used: %v", name, CanSplice())
		}
	}
}

// deafen has the kernel drop whatever comes for c, as if its machine were gone.
func deafen(c net.Conn) error {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	drop := [1]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]})
	})
	return errors.Join(err, set)
}
