package rawsocket

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair gives a wrapped connection and its other side; all must end within a minute.
func pair(t *testing.T, network string) (net.Conn, net.Conn) {
	t.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ours, err := net.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := Wrap(ours)
	if c == ours || Unwrap(c) != ours {
		t.Fatalf("%T was not wrapped", ours)
	}
	for _, c := range []net.Conn{c, theirs} {
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		t.Cleanup(func() { c.Close() })
	}
	return c, theirs
}

func both(t *testing.T, test func(t *testing.T, c, theirs net.Conn)) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			c, theirs := pair(t, network)
			test(t, c, theirs)
		})
	}
}

// Whoever is told of a reset, the reader does not take it for the end.
func TestAResetIsNoEnd(t *testing.T) {
	reset := func(c net.Conn) {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	t.Run("a write was told", func(t *testing.T) {
		c, theirs := pair(t, "tcp")
		reset(theirs)
		time.Sleep(10 * time.Millisecond) // until it is there: it is told to the next call
		if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("the write: %v", err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the read: %v", err)
		}
	})
	t.Run("at the same moment", func(t *testing.T) {
		for range 300 {
			c, theirs := pair(t, "tcp")
			written := make(chan struct{})
			go func() {
				defer close(written)
				for err := error(nil); err == nil; {
					_, err = c.Write(make([]byte, 100))
				}
			}()
			_, _ = theirs.Read(make([]byte, 1000))
			reset(theirs)
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("the read: %v", err)
			}
			<-written
			_ = c.Close()
		}
	})
	t.Run("while a write is told", func(t *testing.T) {
		var w writeState
		w.trying.Store(true)
		time.AfterFunc(10*time.Millisecond, func() {
			w.reset.Store(true)
			w.trying.Store(false)
		})
		if !w.sawReset() {
			t.Error("the write was not waited for")
		}
	})
	t.Run("after the end", func(t *testing.T) {
		c, theirs := pair(t, "tcp")
		_, _ = theirs.Write([]byte("all"))
		_ = theirs.(*net.TCPConn).CloseWrite()
		if got, err := io.ReadAll(io.LimitReader(c, 3)); string(got) != "all" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
		reset(theirs)
		time.Sleep(10 * time.Millisecond)
		for err := error(nil); err == nil; {
			_, err = c.Write([]byte("x"))
		}
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the read: %v", err)
		}
	})
}

func random(n int) []byte {
	block := make([]byte, 8191) // a prime, so that shifted copies differ
	r := rand.NewChaCha8([32]byte{})
	_, _ = r.Read(block)
	return bytes.Repeat(block, n/len(block)+1)[:n]
}

// Far more than a socket's buffer holds, so that both directions have to wait.
func TestBytesPassWholeWhileBothSidesWait(t *testing.T) {
	both(t, func(t *testing.T, c, theirs net.Conn) {
		data := random(4 << 20)
		echoed := make(chan error, 1)
		go func() {
			_, err := io.Copy(theirs, theirs)
			echoed <- errors.Join(err, theirs.(interface{ CloseWrite() error }).CloseWrite())
		}()
		sent := make(chan error, 1)
		go func() {
			n, err := Writev(c, split(data))
			if n != len(data) {
				t.Errorf("%d of %d bytes sent", n, len(data))
			}
			sent <- errors.Join(err, c.(*Conn).CloseWrite())
		}()
		got, err := io.ReadAll(c)
		if err := errors.Join(err, <-sent, <-echoed); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, data) {
			t.Errorf("%d bytes came back changed", len(got))
		}
	})
}

// split cuts data into parts of all sizes, more than go into one call, some empty.
func split(data []byte) [][]byte {
	var parts [][]byte
	for n := 0; len(data) > 0; n = (n*2 + 1) & (1<<21 - 1) {
		k := min(n, len(data))
		parts = append(parts, data[:k:k], nil)
		data = data[k:]
	}
	return parts
}

func TestDeadlinesEndReadsAndWrites(t *testing.T) {
	both(t, func(t *testing.T, c, theirs net.Conn) {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read %d, %v", n, err)
		}
		data := random(32 << 20)
		_ = c.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		n, err := c.Write(data)
		if n == len(data) || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("wrote %d, %v", n, err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		go c.(*Conn).CloseWrite()
		if got, err := io.ReadAll(theirs); err != nil || !bytes.Equal(got, data[:n]) {
			t.Errorf("%d bytes are said to be written, %d came, %v", n, len(got), err)
		}
	})
}

func TestTheOtherSidesEnd(t *testing.T) {
	both(t, func(t *testing.T, c, theirs net.Conn) {
		theirs.Close()
		if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("read %d, %v after an orderly end", n, err)
		}
		var err error
		for end := time.Now().Add(time.Minute); err == nil && time.Now().Before(end); {
			_, err = c.Write([]byte("x"))
		}
		if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("writing gives %v", err)
		}
	})
	t.Run("reset", func(t *testing.T) {
		c, theirs := pair(t, "tcp")
		_ = theirs.(*net.TCPConn).SetLinger(0)
		theirs.Close()
		if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read %d, %v", n, err)
		}
	})
}

func TestCloseEndsAWaitingRead(t *testing.T) {
	both(t, func(t *testing.T, c, _ net.Conn) {
		ended := make(chan error, 1)
		go func() {
			_, err := c.Read(make([]byte, 1))
			ended <- err
		}()
		time.Sleep(time.Millisecond) // whether it waits already makes no difference
		c.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}

func TestNothingToReadOrWrite(t *testing.T) {
	both(t, func(t *testing.T, c, _ net.Conn) {
		if n, err := c.Read(nil); n != 0 || err != nil {
			t.Errorf("read %d, %v", n, err)
		}
		if n, err := c.Write(nil); n != 0 || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
		if n, err := Writev(c, [][]byte{nil, {}}); n != 0 || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
	})
}

// A connection without a socket of its own stays what it is.
func TestOthersAreNotWrapped(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if Wrap(a) != a || Unwrap(a) != a {
		t.Fatal("wrapped")
	}
	go func() {
		if n, err := Writev(a, [][]byte{[]byte("one"), nil, []byte("two")}); n != 6 || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
	}()
	buf := make([]byte, 6)
	if _, err := io.ReadFull(b, buf); err != nil || string(buf) != "onetwo" {
		t.Errorf("%q, %v", buf, err)
	}
}

// WriteBoth and Writev send the same, whether the connection has a socket or not, and say how much was sent.
func TestTwoPartsArriveInOrder(t *testing.T) {
	pipe := func(t *testing.T) (net.Conn, net.Conn) {
		a, b := net.Pipe()
		t.Cleanup(func() { _, _ = a.Close(), b.Close() })
		return a, b
	}
	for kind, connect := range map[string]func(t *testing.T) (net.Conn, net.Conn){
		"tcp":  func(t *testing.T) (net.Conn, net.Conn) { return pair(t, "tcp") },
		"pipe": pipe,
	} {
		for name, tc := range map[string]struct{ p, q string }{
			"both":        {"one", "second"},
			"first only":  {"one", ""},
			"second only": {"", "second"},
			"neither":     {"", ""},
		} {
			c, theirs := connect(t)
			came := make(chan string)
			go func() {
				got, _ := io.ReadAll(theirs)
				came <- string(got)
			}()
			if n, err := WriteBoth(c, []byte(tc.p), []byte(tc.q)); n != len(tc.p+tc.q) || err != nil {
				t.Errorf("%s, %s: wrote %d, %v", kind, name, n, err)
			}
			parts := [][]byte{[]byte(tc.p), []byte(tc.q)}
			if n, err := Writev(c, parts); n != len(tc.p+tc.q) || err != nil || len(parts[0])+len(parts[1]) > 0 {
				t.Errorf("%s, %s: wrote %d, %v, left %q", kind, name, n, err, parts)
			}
			_ = c.Close()
			if got, want := <-came, tc.p+tc.q+tc.p+tc.q; got != want {
				t.Errorf("%s, %s: %q instead of %q", kind, name, got, want)
			}
		}
	}
	t.Run("to nobody", func(t *testing.T) {
		a, b := pipe(t)
		_ = b.Close()
		parts := [][]byte{[]byte("one"), []byte("two")}
		if n, err := Writev(a, parts); n != 0 || !errors.Is(err, io.ErrClosedPipe) || string(parts[0]) != "one" {
			t.Errorf("wrote %d, %v, left %q", n, err, parts)
		}
		if n, err := WriteBoth(a, []byte("one"), []byte("two")); n != 0 || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("wrote %d, %v", n, err)
		}
	})
	t.Run("to somebody who leaves in between", func(t *testing.T) {
		a, b := pipe(t)
		go func() {
			_, _ = io.ReadFull(b, make([]byte, 3))
			_ = b.Close()
		}()
		parts := [][]byte{[]byte("one"), []byte("two")}
		if n, err := Writev(a, parts); n != 3 || !errors.Is(err, io.ErrClosedPipe) || len(parts[0]) > 0 || string(parts[1]) != "two" {
			t.Errorf("wrote %d, %v, left %q", n, err, parts)
		}
	})
}

// arrived waits until c has n bytes to read.
func arrived(t *testing.T, c net.Conn, n int) {
	t.Helper()
	buf := make([]byte, n)
	var got int
	var err error
	for end := time.Now().Add(time.Minute); got < n && time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		_ = rawOf(t, c).Control(func(fd uintptr) { got, err = TryPeek(fd, buf) })
	}
	if got != n {
		t.Fatalf("%d of %d bytes arrived, %v", got, n, err)
	}
}

// rawOf returns the socket of c.
func rawOf(t *testing.T, c net.Conn) syscall.RawConn {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestAPeekLeavesTheBytes(t *testing.T) {
	both(t, func(t *testing.T, c, theirs net.Conn) {
		peek := func(n int) (got string, err error) {
			buf := make([]byte, n)
			_ = rawOf(t, c).Control(func(fd uintptr) { n, err = TryPeek(fd, buf) })
			return string(buf[:n]), err
		}
		if got, err := peek(3); got != "" || err != syscall.EAGAIN {
			t.Errorf("%q, %v before anything came", got, err)
		}
		_, _ = theirs.Write([]byte("abcdef"))
		arrived(t, c, 6)
		for range 2 {
			if got, err := peek(3); got != "abc" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		}
		buf := make([]byte, 6)
		if n, err := c.Read(buf); string(buf[:n]) != "abcdef" || err != nil {
			t.Errorf("%q, %v after a peek", buf[:n], err)
		}
		_ = theirs.Close()
		if n, err := c.Read(buf); n != 0 || err != io.EOF {
			t.Fatalf("%d, %v", n, err)
		}
		if got, err := peek(3); got != "" || err != nil {
			t.Errorf("%q, %v at the end", got, err)
		}
	})
}

func TestConsume(t *testing.T) {
	parts := [][]byte{[]byte("abc"), nil, []byte("de"), []byte("f")}
	if left := Consume(parts, 4); left != 2 || string(bytes.Join(parts, []byte("|"))) != "||e|f" {
		t.Errorf("%d left: %q", left, parts)
	}
	if left := Consume(parts, 2); left != 0 {
		t.Errorf("%d left", left)
	}
}

func TestNoAllocations(t *testing.T) {
	c, theirs := pair(t, "tcp")
	buf, parts := make([]byte, 64), make([][]byte, 2)
	if n := testing.AllocsPerRun(100, func() {
		parts[0], parts[1] = buf[:8], buf[8:16]
		if _, err := Writev(c, parts); err != nil {
			t.Fatal(err)
		}
		if _, err := theirs.Write(buf[:8]); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(buf); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TryWrite takes what there is room for, and never waits.
func TestTryWriteDoesNotWait(t *testing.T) {
	both(t, func(t *testing.T, c, theirs net.Conn) {
		w, sent := c.(*Conn), 0
		p := random(64 << 10)
		for n := 1; n > 0; sent += n {
			var err error
			if n, err = w.TryWrite(p); err != nil {
				t.Fatal(err)
			}
		}
		_ = c.Close()
		if n, err := io.Copy(io.Discard, theirs); n != int64(sent) || err != nil {
			t.Errorf("%d of %d bytes, %v", n, sent, err)
		}
		if _, err := w.TryWrite(p); err == nil {
			t.Error("it took bytes after the end")
		}
	})
	both(t, func(t *testing.T, c, theirs net.Conn) {
		parts := [][]byte{nil, []byte("one"), nil, []byte("two")}
		if n, err := c.(*Conn).TryWritev(parts); n != 6 && (WritevIsOneCall || n != 3) || err != nil || Consume(parts, 0) != 6-n {
			t.Errorf("%d bytes, %v, left %q", n, err, parts)
		}
		_ = theirs.Close()
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
			n, err := c.(*Conn).TryWritev([][]byte{[]byte("one"), []byte("two")})
			if err == nil {
				continue
			}
			if n != 0 || !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%d bytes to nobody, %v", n, err)
			}
			return
		}
		t.Error("nobody is there, and there is no error")
	})
}
