package upstream

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/sock"
)

// ahead is how a request that may run twice takes a connection while many are under way.
var ahead = GetOptions{Unseen: true, Ahead: true}

// lookAt looks ahead as if now.
func (p *Pool) lookAt(now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lookAhead(now)
}

// One look covers what is handed out next and leaves out what is closed, or has spoken.
func TestALookAheadFindsTheQuietOnes(t *testing.T) {
	if !sock.ManyLooks {
		t.Skip("no look at several connections here")
	}
	for name, listen := range map[string]func(*testing.T) *server{"tcp": tcpServer, "unix": unixServer} {
		t.Run(name, func(t *testing.T) {
			s := listen(t)
			p := makePool(t, s.target(), Options{})
			var held []*Conn
			for range lookedAtOnce + 3 {
				held = append(held, get(t, p, GetOptions{Fresh: true}))
				far := s.accept()
				switch len(held) {
				case 8:
					_ = far.Close()
				case 9:
					_, _ = io.WriteString(far, "x")
				}
			}
			awaitHeard(t, held[7])
			awaitHeard(t, held[8])
			for _, c := range held {
				c.Release(0)
			}
			now := p.now()
			p.lookAt(now)
			for i, c := range held {
				want := i >= 3 && i != 7 && i != 8 // the first three are below the sixteen
				if got := c.lookIsFresh(now); got != want {
					t.Errorf("connection %d of %d: the look holds: %v, want %v", i+1, len(held), got, want)
				}
				if c.lookIsFresh(now + lookLasts + 1) {
					t.Errorf("connection %d: the look holds for too long", i+1)
				}
			}
		})
	}
}

// A request sent by a look ahead is sent without another; the next holder's
// use begins without it.
func TestALookAheadIsForOneUse(t *testing.T) {
	if !sock.ManyLooks {
		t.Skip("no look at several connections here")
	}
	s := tcpServer(t)
	p := makePool(t, s.target(), Options{})
	first, second := get(t, p, GetOptions{Fresh: true}), get(t, p, GetOptions{Fresh: true})
	_, far := s.accept(), s.accept()
	first.Release(0)
	second.Release(0)
	p.lookAt(p.now() + time.Hour) // good for as long as the test takes
	c := p.TryPooled(&ahead)
	if c != second || !c.lookedAhead {
		t.Fatalf("taken: the one released last: %v, looked at ahead: %v", c == second, c.lookedAhead)
	}
	_, _ = io.WriteString(far, "stray ") // which a look would find
	awaitHeard(t, c)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = io.ReadFull(far, make([]byte, 4))
		_, _ = io.WriteString(far, "answer")
	}()
	in := make([]byte, 16)
	if sent, n, err := c.SendLooking([][]byte{[]byte("ping")}, in); sent != 4 || !bytes.HasPrefix(in[:n], []byte("stray ")) || err != nil {
		t.Errorf("sent %d, read %q, %v", sent, in[:n], err)
	}
	<-answered
	c.Release(0)
	if c = p.TryPooled(&GetOptions{Unseen: true}); c != second || c.lookedAhead {
		t.Fatalf("without leave: the same one: %v, looked at ahead: %v", c == second, c.lookedAhead)
	}
	_, _ = io.WriteString(far, "stray")
	awaitHeard(t, c)
	if sent, _, err := c.SendLooking([][]byte{[]byte("ping")}, in); sent != 0 || !errors.Is(err, ErrStale) {
		t.Errorf("after a use: sent %d, %v", sent, err)
	}
	c.CloseUnsent()
	if st := p.Stats(); st.Unsolicited != 1 {
		t.Errorf("%d unsolicited, want 1", st.Unsolicited)
	}
}

// What was closed, or has spoken, before it is taken is found, with leave for a look ahead too.
func TestWithLeaveForALookAheadWhatIsThereIsFound(t *testing.T) {
	for name, far := range map[string]func(io.WriteCloser){
		"closed":  func(c io.WriteCloser) { _ = c.Close() },
		"unasked": func(c io.WriteCloser) { _, _ = io.WriteString(c, "x") },
	} {
		t.Run(name, func(t *testing.T) {
			s := tcpServer(t)
			p := makePool(t, s.target(), Options{})
			first, second := get(t, p, GetOptions{Fresh: true}), get(t, p, GetOptions{Fresh: true})
			_, other := s.accept(), s.accept()
			far(other)
			awaitHeard(t, second)
			first.Release(0)
			second.Release(0)
			c := p.TryPooled(&ahead)
			if c != second {
				t.Fatal("not the one released last")
			}
			if sent, _, err := c.SendLooking([][]byte{[]byte("ping")}, make([]byte, 8)); sent != 0 || !errors.Is(err, ErrStale) {
				t.Errorf("sent %d, %v", sent, err)
			}
			c.CloseUnsent()
		})
	}
}

// A connection that ended behind a look ahead is as one that a look found closed, but only
// where the upstream's system took nothing of the request.
func TestWhatNobodyTookBehindALookAheadWasNotSent(t *testing.T) {
	if !sock.ManyLooks {
		t.Skip("no look at several connections here")
	}
	for name, tc := range map[string]struct{ taken, reset bool }{
		"nothing taken": {}, "taken": {taken: true}, "taken, then reset": {taken: true, reset: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := tcpServer(t)
			p := makePool(t, s.target(), Options{})
			first, second := get(t, p, GetOptions{Fresh: true}), get(t, p, GetOptions{Fresh: true})
			_, far := s.accept(), s.accept()
			for range 20 { // until both systems confirm what comes by what they say next
				_, _ = io.WriteString(second, "ping")
				_, _ = io.ReadFull(far, make([]byte, 4))
				_, _ = io.WriteString(far, "pong")
				_, _ = io.ReadFull(second, make([]byte, 4))
			}
			first.Release(0)
			second.Release(0)
			p.lookAt(p.now() + time.Hour) // good for as long as the test takes
			c := p.TryPooled(&ahead)
			if c != second || !c.lookedAhead {
				t.Fatal("not taken by a look ahead")
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				if tc.taken {
					_, _ = io.ReadFull(far, make([]byte, 4))
				}
				if tc.reset {
					_ = far.(*net.TCPConn).SetLinger(0)
				}
				_ = far.Close()
			}()
			if !tc.taken {
				awaitHeard(t, c)
			}
			sent, _, err := c.SendLooking([][]byte{[]byte("ping")}, make([]byte, 8))
			if stale := errors.Is(err, ErrStale); err == nil || stale == tc.taken || stale != (sent == 0) {
				t.Errorf("sent %d, %v", sent, err)
			}
			<-done
		})
	}
}
