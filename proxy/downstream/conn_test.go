package downstream

import (
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/poison"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// holder counts what a Conn asks of whoever holds spans.
type holder struct{ detached, checked int }

func (h *holder) Detach()              { h.detached++ }
func (h *holder) CheckDetached([]byte) { h.checked++ }
func (h *holder) Compact()             {}

var limits = http1.Limits{HeaderBytes: 8 << 10, Headers: 100}

// client returns a Conn and the client's end of it.
func client(t *testing.T) (*Conn, net.Conn, *holder) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	clk, spans := clock.New(), &holder{}
	c := &Conn{}
	c.Init(far, clk, "", 0, spans)
	t.Cleanup(c.PutIn)
	return c, near, spans
}

// read makes c read text, which the client sends.
func read(t *testing.T, c *Conn, from net.Conn, text string) {
	t.Helper()
	if !c.HasBuffer() {
		c.Begin(buffer.Small)
	}
	go func() { _, _ = io.WriteString(from, text) }()
	for n := c.Buffered() + len(text); c.Buffered() < n; {
		if !c.HasRoom() {
			c.GrowIn()
		}
		if err := c.Fill(); err != nil {
			t.Fatal(err)
		}
	}
}

const get = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n"

func parse(t *testing.T, c *Conn) {
	t.Helper()
	if whole, err := c.ParseRequest(limits); !whole || err != nil {
		t.Fatal(whole, err)
	}
}

func TestTheBytesAfterARequestAreTheNext(t *testing.T) {
	c, from, _ := client(t)
	read(t, c, from, get+"GET /b")
	parse(t, c)
	if rest := string(c.Peek()); string(c.Request().Path) != "/a" || rest != "GET /b" {
		t.Errorf("path %s, then %q", c.Request().Path, rest)
	}
	c.EndRequest()
	if string(c.Peek()) != "GET /b" || string(c.Free()[:0]) != "" || len(c.Free()) != buffer.Small-len("GET /b") {
		t.Errorf("%q and room for %d", c.Peek(), len(c.Free()))
	}
	if whole, err := c.ParseRequest(limits); whole || err != nil {
		t.Error("half a request is", whole, err)
	}
}

func TestAnIdleConnectionKeepsNoBufferOfAnotherSize(t *testing.T) {
	c, from, spans := client(t)
	read(t, c, from, get)
	parse(t, c)
	c.EndRequest()
	if !c.HasBuffer() {
		t.Error("an empty buffer that the next request can use was dropped")
	}
	read(t, c, from, "GET / HTTP/1.1\r\nHost: x\r\nA: "+strings.Repeat("a", buffer.Small)+"\r\n\r\n")
	parse(t, c)
	before := spans.detached
	c.EndRequest()
	if c.HasBuffer() || spans.detached == before || poison.On && spans.checked == 0 {
		t.Error("a large buffer was kept, or dropped with spans in it", c.HasBuffer(), *spans)
	}
}

func TestHeadersStayValidWhenTheirBufferIsGivenAway(t *testing.T) {
	c, from, _ := client(t)
	read(t, c, from, get+"rest")
	parse(t, c)
	var used buffer.Spanned[SpanHolder]
	c.DetachHeaders(buffer.Medium, &used)
	copy(c.Free(), strings.Repeat("z", 100))
	if string(c.Request().Path) != "/a" || string(c.Peek()) != "rest" || len(c.Memory()) < buffer.Medium || &used.Bytes()[0] == &c.Memory()[0] {
		t.Errorf("path %s, rest %q in %d bytes", c.Request().Path, c.Peek(), len(c.Memory()))
	}
	used.Put(nil, c.Spans())
}

func TestAShrunkRequestIsTheSameRequest(t *testing.T) {
	c, from, _ := client(t)
	read(t, c, from, get+"rest")
	parse(t, c)
	if !c.CanShrink(16) {
		t.Fatal("a buffer that is nearly empty cannot shrink")
	}
	c.Shrink(16, limits)
	if n := len(c.Memory()); n != len(get)+len("rest")+16 {
		t.Error("it takes", n)
	}
	if string(c.Request().Path) != "/a" || string(c.Peek()) != "rest" || !c.HasRoom() {
		t.Errorf("path %s, rest %q", c.Request().Path, c.Peek())
	}
	if c.CanShrink(16) {
		t.Error("it can shrink again")
	}
	c.Discard(4)
	c.ShrinkEmpty(8)
	if c.Buffered() != 0 || len(c.Free()) != 8 {
		t.Error(c.Buffered(), len(c.Free()))
	}
}

func TestUsedBytesHaveRoomUpToWhatWasRead(t *testing.T) {
	c, from, _ := client(t)
	read(t, c, from, "abcdefgh")
	c.Discard(4)
	used := c.Used(2)
	if string(used) != "cd" || cap(used) != 6 {
		t.Fatalf("%q, room %d", used, cap(used))
	}
	if joined := append(used, "XY"...); string(joined) != "cdXY" || string(c.Peek()) != "XYgh" {
		t.Errorf("%q, then %q", joined, c.Peek())
	}
}

// A deadline that somebody moved to wake the connection is no timeout, and is set again.
func TestAWakeUpIsNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, from, _ := client(t)
		c.Begin(buffer.Small)
		c.SetRead(c.clock.Now().Add(time.Minute), 0)
		c.Enter(PhaseIdle)
		c.Wake(PhaseBackoff) // another phase
		go func() { time.Sleep(time.Second); c.Wake(PhaseIdle) }()
		began := time.Now()
		if err := c.Fill(); !rawsocket.IsTimeout(err) || time.Since(began) != time.Second {
			t.Fatal(err, time.Since(began))
		}
		if !c.WokenEarly() || !c.MayHaveMoved() {
			t.Error("a wake-up counts as a timeout")
		}
		c.SetRead(c.clock.Now().Add(time.Minute), 0)
		began = time.Now()
		if err := c.Fill(); !rawsocket.IsTimeout(err) || time.Since(began) != time.Minute || c.WokenEarly() {
			t.Error("a timeout counts as a wake-up", err, time.Since(began))
		}
		_ = from
	})
}

func TestAClientThatReadsNothingIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := client(t)
		c.BeginRequest(time.Second)
		now := c.clock.Now()
		seen := make(chan bool)
		go func() { time.Sleep(time.Millisecond); seen <- c.WritingSince() == now }()
		if err := c.Write([]byte("x"), now); !rawsocket.IsTimeout(err) || !c.WriteTimedOut() {
			t.Error(err, c.WriteTimedOut())
		}
		if !<-seen || !c.WritingSince().IsZero() {
			t.Error("the write in flight is not seen, or its end is not")
		}
	})
}

// counted counts how often its deadlines are set.
type counted struct {
	net.Conn
	reads, writes []time.Time
}

func (c *counted) SetReadDeadline(t time.Time) error  { c.reads = append(c.reads, t); return nil }
func (c *counted) SetWriteDeadline(t time.Time) error { c.writes = append(c.writes, t); return nil }

// A deadline moves rarely, and is never sooner than asked for nor later than allowed.
func TestDeadlinesMoveRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := client(t)
		n := &counted{Conn: c.NC}
		c.NC = n
		c.BeginRequest(time.Minute)
		for range 300 {
			now := c.clock.Now()
			c.SetRead(now.Add(10*time.Second), 5*time.Second)
			if left := time.Until(n.reads[len(n.reads)-1]); left < 10*time.Second || left > 15*time.Second {
				t.Fatalf("a read has %v", left)
			}
			c.ExtendWrite(now)
			if left := time.Until(n.writes[len(n.writes)-1]); left < time.Minute || left > 2*time.Minute {
				t.Fatalf("a write has %v", left)
			}
			time.Sleep(time.Second)
		}
		if len(n.reads) > 61 || len(n.writes) > 6 {
			t.Errorf("%d and %d moves in 300 s", len(n.reads), len(n.writes))
		}
		c.SetRead(c.clock.Now().Add(time.Second), 0) // sooner
		if left := time.Until(n.reads[len(n.reads)-1]); left != time.Second {
			t.Errorf("a sooner deadline is %v away", left)
		}
		before := len(n.reads)
		c.ReadMoved()
		if c.SetRead(c.clock.Now().Add(time.Second), 0); len(n.reads) != before+1 {
			t.Error("a deadline that somebody moved was not set again")
		}
		c.BeginRequest(0)
		before = len(n.writes)
		time.Sleep(time.Hour)
		if c.ExtendWrite(c.clock.Now()); len(n.writes) != before {
			t.Error("without a timeout a write has a deadline")
		}
	})
}
