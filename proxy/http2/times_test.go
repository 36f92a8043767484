package http2

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// A response may pause for longer than any write may take, and a client that answers pings stays.
func TestASilentResponseIsNotReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := dialFrames(t, options(func(s *textStream) {
			_, _ = readHead(s)
			for i, piece := range []string{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na", "b"} {
				time.Sleep(time.Duration(i) * 10 * time.Minute)
				_ = s.SetWriteDeadline(time.Now().Add(time.Minute)) // for this piece
				_, _ = io.WriteString(s, piece)
			}
		}))
		p.answers.Store(true)
		p.begin(true, getFields...)
		time.Sleep(11 * time.Minute)
		p.want(`1: "b" end`)
	})
}

func TestAClientThatVanishedIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan time.Duration, 1)
		began := time.Now()
		p := dialFrames(t, options(func(s *textStream) { <-s.Done(); gone <- time.Since(began) }))
		p.begin(true, getFields...)
		if took := <-gone; took > 2*time.Minute {
			t.Errorf("after %v", took)
		}
		p.want("end")
	})
}

func TestTimesOfAnIdleClient(t *testing.T) {
	for name, tc := range map[string]struct {
		send        func(p *peer)
		want, grace time.Duration
	}{
		"idle":                        {func(*peer) {}, 3 * time.Minute, goAwayAfter},
		"headers that do not end":     {func(p *peer) { _ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1}) }, 10 * time.Second, 0},
		"a piece of a frame's header": {func(p *peer) { _, _ = p.nc.Write([]byte{0, 0}) }, 10 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := options(echo)
				o.IdleTimeout, o.PingAfter = 3*time.Minute, 0
				p := dialFrames(t, o)
				began := time.Now()
				tc.send(p)
				p.patience(time.Hour)
				if took := time.Since(began) - tc.grace; took != tc.want {
					t.Errorf("ended after %v, want %v", took, tc.want)
				}
			})
		})
	}
}

// patience waits for the end.
func (p *peer) patience(time.Duration) { <-p.over }

// A client that opens no window ends a write at its deadline, or when the deadline moves to the past.
func TestABlockedWriteEndsAtItsDeadline(t *testing.T) {
	for _, after := range []time.Duration{5 * time.Second, 0} {
		synctest.Test(t, func(t *testing.T) {
			result := make(chan error, 1)
			p := dialFrames(t, options(func(s *textStream) {
				_, _ = readHead(s)
				_ = s.SetWriteDeadline(time.Now().Add(time.Hour))
				go func() { time.Sleep(time.Minute); _ = s.SetWriteDeadline(time.Now().Add(after)) }()
				_, err := io.WriteString(s, "HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n"+strings.Repeat("x", 200000))
				result <- err
			}))
			p.answers.Store(true)
			p.begin(true, getFields...)
			began := time.Now()
			err := <-result
			if took := time.Since(began); err == nil || took != time.Minute+after {
				t.Errorf("%v after %v", err, took)
			}
			p.want("1: reset CANCEL")
		})
	}
}

// A client that is told to go away is served all that was on its way, and refused what comes later. Its
// connection is not closed then: a reset might overtake the last response.
func TestGoAwayLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		o := options(func(s *textStream) { time.Sleep(time.Second); echo(s) })
		c := NewConn(far, o)
		ended := make(chan struct{})
		go func() { c.Run(); close(ended) }()
		p := &peer{Framer: http2.NewFramer(near, near), t: t, nc: near, more: make(chan struct{}, 1), over: make(chan struct{})}
		p.enc = hpack.NewEncoder(&p.text)
		go p.read()
		_, _ = io.WriteString(near, Preface)
		_ = p.WriteSettings()
		p.begin(true, getFields...)
		synctest.Wait()
		c.GoAway()
		c.GoAway()
		p.want("away 2147483647 NO_ERROR")
		p.begin(true, getFields...) // it was on its way
		time.Sleep(2 * goAwayAfter)
		p.want("away 3 NO_ERROR")
		p.begin(true, getFields...)
		p.want("5: reset REFUSED_STREAM")
		p.want("1: \"")
		p.want("3: \"")
		<-ended
		synctest.Wait()
		if p.mu.Lock(); len(p.seen) > 0 && p.seen[len(p.seen)-1] == "end" {
			t.Error("it was closed, not left to its owner, who lets the client read the last response")
		}
		p.mu.Unlock()
		_ = far.Close()
		p.want("end")
		o.Workers.Close()
	})
}

// A client that is told to go away and does not read its last response is closed at once when the write has failed.
func TestAConnectionWhoseLastResponseWasNotWrittenIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		o := options(echo)
		c := NewConn(far, o)
		ended := make(chan struct{})
		go func() { c.Run(); close(ended) }()
		p := newPeer(t, near)
		_, _ = io.WriteString(near, Preface)
		_ = p.WriteSettings()
		p.begin(true, getFields...)
		synctest.Wait()
		c.GoAway()
		<-ended
		if far.SetDeadline(time.Time{}) == nil {
			t.Error("it was left to its owner, as if the client could still read a response")
		}
		_ = far.Close()
		o.Workers.Close()
	})
}

// Headers are handed over once, whole, and not of a stream that has ended.
func TestHeadersAreHandedOver(t *testing.T) {
	heads, again := make(chan []byte), make(chan struct{})
	p := dialFrames(t, options(func(s *textStream) {
		<-again
		for range 2 {
			head := s.TakeHead()
			heads <- bytes.Clone(head.Bytes())
			head.Put()
		}
	}))
	p.begin(true, getFields...)
	again <- struct{}{}
	var q http1.Request
	if n, err := q.Compose(<-heads, http1.Limits{HeaderBytes: 1 << 10, Headers: 10}); n == 0 || err != nil || string(q.Path) != "/a" {
		t.Errorf("%d %v %s", n, err, q.Path)
	}
	if rest := <-heads; rest != nil {
		t.Errorf("twice: %q", rest)
	}
	p.begin(true, getFields...)
	_ = p.WriteRSTStream(3, http2.ErrCodeCancel)
	p.sync()
	again <- struct{}{}
	if head := <-heads; head != nil {
		t.Errorf("of a stream that was reset: %q", head)
	}
	<-heads
}

// A connection that is to go away before it has begun serves what its client sends at once, and then ends.
func TestAConnectionMayGoAwayBeforeItBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		o := options(echo)
		c := NewConn(far, o)
		c.GoAway()
		ended := make(chan struct{})
		go func() { c.Run(); _ = far.Close(); close(ended) }()
		p := newPeer(t, near)
		go p.read()
		_, _ = io.WriteString(near, Preface)
		_ = p.WriteSettings()
		p.begin(true, getFields...)
		for _, what := range []string{"away 2147483647 NO_ERROR", `1: "`, "away 1 NO_ERROR", "end"} {
			p.want(what)
		}
		<-ended
		_ = near.Close()
		o.Workers.Close()
	})
}

// A client whose fault ended the connection has a second to read why, whatever the write timeout.
func TestAFaultyClientThatReadsNothingEndsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(echo)
		o.WriteTimeout = time.Hour
		near, far := net.Pipe()
		defer near.Close()
		began, ended := time.Now(), make(chan time.Duration)
		go func() { NewConn(far, o).Run(); _ = far.Close(); ended <- time.Since(began) }()
		go func() { _, _ = io.WriteString(near, "no preface of HTTP/2, but as long") }()
		if d := <-ended; d > 2*goodbyeWithin {
			t.Errorf("it took %v", d)
		}
	})
}

// A client that reads nothing at all, of no stream, is ended between one and two write timeouts later.
func TestAClientThatReadsNothingAtAllIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(echo)
		o.WriteTimeout, o.PingAfter, o.IdleTimeout = time.Minute, 0, 0
		near, far := net.Pipe()
		defer near.Close()
		began, ended := time.Now(), make(chan time.Duration)
		go func() { NewConn(far, o).Run(); _ = far.Close(); ended <- time.Since(began) }()
		p := newPeer(t, near)
		_, _ = io.WriteString(near, Preface)
		_ = p.WriteSettings()
		p.begin(true, getFields...)
		if d := <-ended; d < time.Minute || d > 2*time.Minute {
			t.Errorf("after %v", d)
		}
		o.Workers.Close()
	})
}
