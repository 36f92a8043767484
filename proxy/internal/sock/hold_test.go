package sock

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// held gives a pair of which the first is held.
func held(t *testing.T, network string) (*Conn, net.Conn) {
	t.Helper()
	nc, theirs := pair(t, network)
	c := nc.(*Conn)
	c.Hold()
	if !c.Held() {
		t.Fatal("not held")
	}
	t.Cleanup(c.EndHold) // before pair's Close
	return c, theirs
}

// wait reads by Await and TryRead.
func wait(c *Conn, p []byte) (int, error) {
	for c.Held() {
		if err := c.Await(); err != nil {
			return 0, err
		}
		if n, err := c.TryRead(p); err != syscall.EAGAIN {
			return n, err
		}
	}
	return 0, errors.New("not held")
}

func TestHeldReadsMissNothing(t *testing.T) {
	both(t, func(t *testing.T, nc, theirs net.Conn) {
		c := nc.(*Conn)
		defer c.EndHold()
		data := random(256 << 10)
		go func() {
			rest := data
			for len(rest) > 0 {
				n := min(1+rand.IntN(3000), len(rest))
				if _, err := theirs.Write(rest[:n]); err != nil {
					return
				}
				if rest = rest[n:]; n%5 == 0 {
					time.Sleep(time.Duration(n) * time.Microsecond / 20)
				}
			}
		}()
		var got bytes.Buffer
		p := make([]byte, 2000)
		for i := 0; got.Len() < len(data); i++ {
			read := wait
			switch i % 9 { // what may be done between two reads
			case 1:
				c.Let()
			case 2:
				c.EndHold()
			case 3:
				read = (*Conn).Read
			}
			c.Hold()
			n, err := read(c, p[:1+rand.IntN(len(p))])
			if err != nil {
				t.Fatal(err)
			}
			got.Write(p[:n])
		}
		if !bytes.Equal(got.Bytes(), data) {
			t.Error("the bytes came changed")
		}
	})
}

// A question and its answer, over and over, is what a hold is for.
func TestHeldQuestionsAreAnswered(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		c, theirs := held(t, network)
		go func() {
			p := make([]byte, 8)
			for {
				if _, err := io.ReadFull(theirs, p); err != nil {
					return
				}
				if _, err := theirs.Write(p); err != nil {
					return
				}
			}
		}()
		p := make([]byte, 64)
		for i := range 5000 {
			if _, err := c.Write([]byte("question")); err != nil {
				t.Fatal(err)
			}
			n, err := wait(c, p)
			if err != nil || string(p[:n]) != "question" {
				t.Fatalf("%d: %q, %v", i, p[:n], err)
			}
		}
	}
}

// While one holds its turn, others that want to read wait for it, and read after Let.
func TestAHoldKeepsTheTurn(t *testing.T) {
	c, theirs := held(t, "tcp")
	got := make(chan byte)
	go func() {
		p := make([]byte, 1)
		_, _ = Under(c).Read(p)
		got <- p[0]
	}()
	_, _ = theirs.Write([]byte("a"))
	if err := c.Await(); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 1)
	if n, err := c.TryRead(p); n != 1 || err != nil || p[0] != 'a' {
		t.Fatalf("%d bytes %q, %v: somebody else has read", n, p, err)
	}
	c.Let()
	_, _ = theirs.Write([]byte("b"))
	if b := <-got; b != 'b' {
		t.Errorf("%q after Let", b)
	}
	c.Hold()
	_, _ = theirs.Write([]byte("c"))
	if n, err := wait(c, p); n != 1 || err != nil || p[0] != 'c' {
		t.Errorf("%q, %v when held again", p, err)
	}
}

func TestADeadlineEndsAHeldWait(t *testing.T) {
	c, theirs := held(t, "tcp")
	for range 3 {
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
		c.Hold()
		if n, err := wait(c, make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%d, %v", n, err)
		}
		if c.Held() {
			t.Fatal("still held after an error")
		}
	}
	c.Hold() // fails at once, as the deadline has passed
	if c.Held() {
		t.Error("held past the deadline")
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	c.Hold()
	_, _ = theirs.Write([]byte("x"))
	if n, err := wait(c, make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

func TestCloseEndsAHeldWait(t *testing.T) {
	c, _ := held(t, "tcp")
	closed := make(chan error, 1)
	time.AfterFunc(time.Millisecond, func() { closed <- c.Close() })
	if _, err := wait(c, make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// An end that comes after the bytes is noticed held, one that comes with them at the next Read.
func TestAHeldConnSeesTheEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		together bool
		end      func(net.Conn)
		want     error
	}{
		"end":         {end: func(c net.Conn) { _ = c.Close() }},
		"end at once": {end: func(c net.Conn) { _ = c.Close() }, together: true},
		"reset":       {end: func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); _ = c.Close() }, want: syscall.ECONNRESET},
	} {
		t.Run(name, func(t *testing.T) {
			c, theirs := held(t, "tcp")
			p := make([]byte, 10)
			_, _ = theirs.Write([]byte("abc"))
			if tc.together {
				tc.end(theirs)
			}
			if n, err := wait(c, p); n != 3 || err != nil {
				t.Fatalf("%d, %v", n, err)
			}
			if tc.together {
				if n, err := c.Read(p); n != 0 || err != io.EOF {
					t.Errorf("%d, %v", n, err)
				}
				return
			}
			tc.end(theirs)
			for range 2 { // an end stays
				n, err := wait(c, p)
				if n != 0 || !errors.Is(err, tc.want) {
					t.Fatalf("%d, %v", n, err)
				}
				tc.want = nil // a reset is told once
			}
		})
	}
}

// A reset that a write was told of is not taken for an end.
func TestAHeldWriteIsToldOfAReset(t *testing.T) {
	c, theirs := held(t, "tcp")
	_ = theirs.(*net.TCPConn).SetLinger(0)
	_ = theirs.Close()
	if err := c.Await(); err != nil {
		t.Fatal(err)
	}
	c.hold.look = false
	if err := c.Await(); err != nil { // until it is there
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("the write: %v", err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the read: %v", err)
	}
}

// What a socket does not take at once goes the way of other writes.
func TestAHeldConnWritesAll(t *testing.T) {
	both(t, func(t *testing.T, nc, theirs net.Conn) {
		c := nc.(*Conn)
		c.Hold()
		defer c.EndHold()
		data := random(4 << 20)
		go func() {
			if n, err := c.Write(data); n != len(data) || err != nil {
				t.Errorf("%d, %v", n, err)
			}
			_, _ = Writev(c, split(data))
			_ = c.CloseWrite()
		}()
		time.Sleep(time.Millisecond) // so that the socket is full; else less is tested
		if got, err := io.ReadAll(theirs); err != nil || !bytes.Equal(got, append(data, data...)) {
			t.Errorf("%d bytes came, %v", len(got), err)
		}
	})
}

func TestHoldsEnd(t *testing.T) {
	nc, theirs := pair(t, "tcp")
	c := nc.(*Conn)
	c.Let()
	c.EndHold()
	c.Hold()
	c.EndHold()
	c.EndHold()
	if c.Held() {
		t.Error("still held")
	}
	c.Hold()
	c.Let()
	c.EndHold() // outside of its turn
	_, _ = theirs.Write([]byte("x"))
	if n, err := c.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

func TestAHoldDoesNotAllocate(t *testing.T) {
	c, theirs := held(t, "tcp")
	p := make([]byte, 8)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := theirs.Write(p[:4]); err != nil {
			t.Fatal(err)
		}
		if _, err := wait(c, p); err != nil {
			t.Fatal(err)
		}
		c.Let()
		c.Hold()
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
