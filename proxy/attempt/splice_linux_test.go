package attempt

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/internal/tcptest"
)

// A large body moves inside the kernel, in pieces, and is whole.
func TestABodyThatTheKernelMovesIsWhole(t *testing.T) {
	body := strings.Repeat("0123456789abcdef", 40<<10) // 640 KiB
	r := newRequest(t, serve(t, says("HTTP/1.1 200 OK\r\nContent-Length: 655360\r\n\r\n"+body)))
	a := r.wants(Options{Limits: usual})
	a.Body().HeadersSent()
	first, err := a.Body().Buffered()
	if err != nil || a.HasUnread() || !a.Body().CanSplice() {
		t.Fatalf("%v, unread %v, can be spliced %v", err, a.HasUnread(), a.Body().CanSplice())
	}
	got := string(first)
	dst, client := tcptest.Pair(t)
	rest := make(chan string, 1)
	go func() {
		all, _ := io.ReadAll(client)
		rest <- string(all)
	}()
	until := r.clock.Now().Add(testTimeout)
	pieces := 0
	for !a.Body().Ended() {
		n, whole, err := a.Body().SpliceTo(dst, until, r.clock.Now())
		if err != nil && !rawsocket.IsTimeout(err) || n > SplicePiece || whole != (err == nil) {
			t.Fatalf("%d bytes, whole %v, %v", n, whole, err)
		}
		if !whole && a.Body().SpliceEnded(err, until) != nil {
			t.Fatal("it does not go on")
		}
		pieces++
	}
	_ = dst.Close()
	if got += <-rest; got != body || pieces < 3 {
		t.Errorf("%d of %d bytes, in %d pieces", len(got), len(body), pieces)
	}
	a.Release(a.now)
}

// What is small, framed in chunks or here already does not move inside the kernel, nor while the request is sent.
func TestWhatTheKernelDoesNotMove(t *testing.T) {
	big := strings.Repeat("a", 200<<10)
	for name, tc := range map[string]struct {
		response string
		upload   bool
		read     bool // what came with the headers
		can      bool
	}{
		"a large one":            {"Content-Length: 204800\r\n\r\n" + big, false, true, true},
		"a small one":            {"Content-Length: 20000\r\n\r\n" + big[:20000], false, true, false},
		"bytes that are here":    {"Content-Length: 204800\r\n\r\n" + big, false, false, false},
		"until the end":          {"X: y\r\n\r\n" + big, false, true, false},
		"while the body is sent": {"Content-Length: 204800\r\n\r\n" + big, true, true, false},
	} {
		r := newRequest(t, serve(t, func(c net.Conn) {
			_, _ = readHeaders(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+tc.response)
			stalls(c)
		}))
		if tc.upload {
			r.withBody(1<<20, "begin")
		}
		a := r.wants(Options{Limits: usual})
		for !tc.read && !a.HasUnread() {
			if err := a.fill(testTimeout); err != nil {
				t.Fatal(err)
			}
		}
		if tc.read {
			_, _ = a.Body().Buffered()
		}
		if a.Body().CanSplice() != tc.can {
			t.Errorf("%s: %v", name, a.Body().CanSplice())
		}
		a.Abandon()
	}
}

// A piece that ended early goes on, or the response has ended, by whose fault it was.
func TestWhyAPieceEndedEarly(t *testing.T) {
	const now, before = time.Hour, -time.Hour
	for name, tc := range map[string]struct {
		err    error
		until  time.Duration // from now
		hungUp bool
		want   error
		watch  bool
	}{
		"the client left before":          {ErrClientGone, now, false, ErrClientGone, false},
		"a deadline that came early":      {os.ErrDeadlineExceeded, now, false, nil, true},
		"a pause":                         {os.ErrDeadlineExceeded, before, false, ErrCut, false},
		"a pause, and the client left":    {os.ErrDeadlineExceeded, before, true, ErrCut, false},
		"an error, as the client left":    {errors.New("reset"), now, true, ErrClientGone, false},
		"an error":                        {errors.New("reset"), now, false, ErrCut, false},
		"the upstream's end":              {nil, now, false, ErrCut, false},
		"the upstream's end, client gone": {nil, now, true, ErrCut, false},
	} {
		r := newRequest(t, serve(t, says("HTTP/1.1 200 OK\r\nContent-Length: 655360\r\n\r\nbegin")))
		a := r.wants(Options{Limits: usual})
		a.upload.stop()
		r.hungUp = tc.hungUp
		if err := a.Body().SpliceEnded(tc.err, r.clock.Now().Add(tc.until)); err != tc.want || a.upload.running != tc.watch {
			t.Errorf("%s: %v, the client is watched: %v", name, err, a.upload.running)
		}
		a.Abandon()
	}
	r := newRequest(t, serve(t, says("HTTP/1.1 200 OK\r\nContent-Length: 655360\r\n\r\nbegin")))
	a := r.wants(Options{Limits: usual})
	dst, _ := tcptest.Pair(t)
	r.ClientFailed(ErrClientGone)
	if n, whole, err := a.Body().SpliceTo(dst, r.clock.Now().Add(time.Hour), r.clock.Now()); n != 0 || whole || err != ErrClientGone {
		t.Errorf("%d bytes, whole %v, %v to a client that left", n, whole, err)
	}
}

// bulk is a body that the kernel moves, all but its last byte.
type bulk struct {
	*request
	mu    sync.Mutex
	moves []error // how each piece ends; the last one with what ends the upload
	by    clock.Instant
}

func (b *bulk) CanSplice() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.moves) > 0
}

func (b *bulk) SpliceTo(dst *net.TCPConn, by clock.Instant) (more bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.by = by
	b.pieces.Add(1)
	err, b.moves = b.moves[0], b.moves[1:]
	if err == nil {
		_, err = io.WriteString(dst, "piece")
	}
	if len(b.moves) == 0 {
		go func() { _, _ = io.WriteString(b.conn, "end") }()
	}
	return err == nil && len(b.moves) > 0, err
}

// A request body that the kernel moves is followed by its end. What ends it early is the fault of the upstream, the
// client or nobody.
func TestARequestBodyThatTheKernelMoves(t *testing.T) {
	for name, tc := range map[string]struct {
		moves  []error
		comes  string // to the upstream before it responds
		cause  policy.Cause
		sent   bool
		failed bool // the client
	}{
		"it is whole":        {[]error{nil, nil}, "beginpiecepieceend", policy.CauseStatus, true, false},
		"the client left":    {[]error{nil, ErrClientGone}, "beginpiecepiece", policy.CauseReset, false, true},
		"the upstream stops": {[]error{nil, ErrNotTaken}, "beginpiece", policy.CauseStatus, false, false},
	} {
		r := newRequest(t, serve(t, func(c net.Conn) {
			_, _ = readHeaders(c)
			if _, err := io.ReadFull(c, make([]byte, len(tc.comes))); err == nil {
				_, _ = io.WriteString(c, ok200)
			}
			stalls(c)
		})).withBody(8, "begin")
		b := &bulk{request: r, moves: tc.moves}
		r.source = b
		a, cause := r.send(Options{Limits: usual})
		if cause != tc.cause || a.IsSent() != tc.sent || r.ClientStaysOn() == tc.failed || !a.upload.spliced || b.by == 0 {
			t.Errorf("%s: %v, sent %v, the client stays: %v", name, cause, a.IsSent(), r.ClientStaysOn())
		}
		a.Abandon()
	}
}

// A response that its connection ends is not whole if that was reset, which a read after a splice may not tell.
func TestAResetAfterTheKernelMovedTheRequestIsNoEnd(t *testing.T) {
	for name, reset := range map[string]bool{"end": false, "reset": true} {
		over := make(chan struct{})
		r := newRequest(t, serve(t, func(c net.Conn) {
			_, _ = readHeaders(c)
			_, _ = io.ReadFull(c, make([]byte, len("beginpieceend")))
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nhello")
			<-over
			if reset {
				_ = c.(*net.TCPConn).SetLinger(0)
			}
		})).withBody(8, "begin")
		r.source = &bulk{request: r, moves: []error{nil}}
		a := r.wants(Options{Limits: usual})
		got := ""
		for got != "hello" {
			piece, err := a.Body().Next(testTimeout)
			if err != nil {
				t.Fatal(err)
			}
			got += string(piece)
		}
		close(over)
		_, err := readAll(a)
		if want := map[bool]error{false: io.EOF, true: ErrCut}[reset]; err != want {
			t.Errorf("%s: %v", name, err)
		}
		a.Abandon()
	}
}
