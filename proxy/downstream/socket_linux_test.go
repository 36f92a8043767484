package downstream

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/internal/tcptest"
)

// overTCP returns a Conn over loopback and the client's end of it.
func overTCP(t *testing.T) (*Conn, *net.TCPConn) {
	t.Helper()
	near, far := tcptest.Pair(t)
	c := &Conn{}
	c.Init(near, clock.New(), "", 0, &holder{})
	return c, far
}

// soon waits until it is true of the socket: what was sent over loopback is there soon.
func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not in time:", what)
		}
	}
}

// An idle connection has no buffer until its request's first bytes come.
func TestAnIdleConnectionWaitsWithoutABuffer(t *testing.T) {
	c, far := overTCP(t)
	filled := make(chan error, 1)
	go func() { filled <- c.FillIdle() }()
	_, _ = io.WriteString(far, get)
	if err := <-filled; err != nil || string(c.Peek()) != get {
		t.Fatal(err, string(c.Peek()))
	}
	c.Discard(len(get))
	c.DropBuffer()
	_ = c.NC.SetReadDeadline(time.Now().Add(time.Millisecond))
	if err := c.FillIdle(); !rawsocket.IsTimeout(err) || c.HasBuffer() {
		t.Errorf("%v; it has a buffer: %v", err, c.HasBuffer())
	}
	c.ClearRead()
	_ = far.CloseWrite()
	if err := c.FillIdle(); err != io.EOF {
		t.Error("at the end:", err)
	}
}

// What was read of the next request stays, and the rest is read behind it.
func TestAnIdleReadContinues(t *testing.T) {
	c, far := overTCP(t)
	_, _ = io.WriteString(far, "GET ")
	if err := c.FillIdle(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(far, "/")
	if err := c.FillIdle(); err != nil || string(c.Peek()) != "GET /" {
		t.Errorf("%v %q", err, c.Peek())
	}
}

func TestReadNowDoesNotWait(t *testing.T) {
	c, far := overTCP(t)
	p := make([]byte, 10)
	if n, err := c.ReadNow(p); n != 0 || err != nil || c.HasUnread() || c.FillNow() {
		t.Errorf("nothing is there: %d %v", n, err)
	}
	_, _ = io.WriteString(far, "abc")
	soon(t, "the bytes", c.HasUnread)
	if c.HungUp() {
		t.Error("the client is there")
	}
	if n, err := c.ReadNow(p); n != 3 || err != nil || string(p[:n]) != "abc" || c.HasUnread() {
		t.Errorf("%d %v", n, err)
	}
	_ = c.NC.SetReadDeadline(Past)
	if n, err := c.ReadNow(p); n != 0 || err != nil {
		t.Errorf("a deadline that has passed: %d %v", n, err)
	}
	_ = c.NC.SetReadDeadline(time.Time{})
	_, _ = io.WriteString(far, "de")
	soon(t, "more", c.HasUnread)
	if !c.FillNow() || string(c.Peek()) != "de" {
		t.Errorf("%q", c.Peek())
	}
	_ = far.CloseWrite()
	soon(t, "the end", c.HungUp)
	if n, err := c.ReadNow(p); n != 0 || err != io.EOF || c.HasUnread() {
		t.Errorf("at the end: %d %v", n, err)
	}
	_ = c.NC.Close()
	if n, err := c.ReadNow(p); n != 0 || err == nil || err == io.EOF || !c.HungUp() {
		t.Errorf("closed: %d %v", n, err)
	}
}

// A client that leaves is noticed although bytes of it are unread.
func TestAClientThatLeftIsNoticedBehindItsBytes(t *testing.T) {
	c, far := overTCP(t)
	_, _ = io.WriteString(far, "unread")
	soon(t, "the bytes", c.HasUnread)
	_ = far.Close()
	soon(t, "the end", c.HungUp)
	if !c.HasUnread() {
		t.Error("the bytes are gone")
	}
}

// The client can read the last response although it still sends, and is not waited for without end.
func TestAGentleCloseReadsWhatComes(t *testing.T) {
	c, far := overTCP(t)
	done := make(chan struct{})
	_, _ = io.WriteString(far, strings.Repeat("a", 20_000))
	_ = c.Write([]byte("last"), c.clock.Now())
	go func() { defer close(done); c.CloseGently(10 * time.Second) }()
	if got, err := io.ReadAll(far); string(got) != "last" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	_ = far.Close()
	<-done

	c, far = overTCP(t)
	c.CloseGently(time.Millisecond) // the client sends nothing and does not close
	if _, err := c.NC.Write([]byte("x")); err == nil {
		t.Error("it is open")
	}
	_ = far
}

func TestAnAbortIsAReset(t *testing.T) {
	c, far := overTCP(t)
	c.Abort()
	if _, err := far.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("the client got %v", err)
	}
}

// The next read has room for a request like the last one, within bounds.
func TestTheNextReadHasRoomForABody(t *testing.T) {
	for _, tc := range []struct {
		f    http1.Framing
		size int
	}{
		{http1.Framing{Kind: http1.BodyNone}, buffer.Small},
		{http1.Framing{Kind: http1.BodyLength, Length: 10}, buffer.Small},
		{http1.Framing{Kind: http1.BodyLength, Length: buffer.Small}, buffer.Medium},
		{http1.Framing{Kind: http1.BodyLength, Length: buffer.Medium}, buffer.Wide},
		{http1.Framing{Kind: http1.BodyLength, Length: buffer.Wide}, buffer.Wide},
		{http1.Framing{Kind: http1.BodyLength, Length: buffer.Wide + 1}, buffer.Small},
		{http1.Framing{Kind: http1.BodyChunked}, buffer.Small},
	} {
		c, far := overTCP(t)
		_, _ = io.WriteString(far, get)
		if err := c.FillIdle(); err != nil {
			t.Fatal(err)
		}
		parse(t, c)
		c.SizeNextRead(tc.f)
		c.EndRequest()
		_, _ = io.WriteString(far, "x")
		if err := c.FillIdle(); err != nil || len(c.Memory()) != tc.size {
			t.Errorf("%+v: %d bytes, %v", tc.f, len(c.Memory()), err)
		}
	}
}

// A wait for the rest of a body ends if others need the client's slot, and the next body begins anew.
func TestAClientIsTurnedAway(t *testing.T) {
	c, _ := overTCP(t)
	c.BeginBody()
	if c.IsTurnedAway() {
		t.Error("before")
	}
	ended := make(chan error, 1)
	c.Begin(buffer.Small)
	go func() { ended <- c.Fill() }()
	c.TurnAway()
	if err := <-ended; !rawsocket.IsTimeout(err) || !c.IsTurnedAway() {
		t.Errorf("%v, turned away: %v", err, c.IsTurnedAway())
	}
	if c.BeginBody(); c.IsTurnedAway() {
		t.Error("the next body")
	}
}
