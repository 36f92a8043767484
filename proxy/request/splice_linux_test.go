package request_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/requesttest"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

const spliced = 600_000 // bytes of a body, of which the last 4 KiB are read

// uploadTCP returns a request with a body that is too large to be kept, over TCP.
func uploadTCP(t *testing.T, change func(c *settings.Config)) *requesttest.Client {
	t.Helper()
	c := requesttest.BeginTCP(t, message("PUT", "/a", fmt.Sprintf("Content-Length: %d", spliced)), func(c *settings.Config) {
		c.Default.RetryBufferBytes = 1000
		if change != nil {
			change(c)
		}
	})
	c.Prepare()
	return c
}

// received returns what arrives at an upstream, once it has ended.
func received(up *net.TCPConn) <-chan string {
	all := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(up)
		all <- string(b)
	}()
	return all
}

func TestWhichBodiesTheKernelMoves(t *testing.T) {
	headers := message("PUT", "/a", fmt.Sprintf("Content-Length: %d", spliced))
	small := func(c *settings.Config) { c.Default.RetryBufferBytes = 1000 }
	for name, tc := range map[string]struct {
		c    *requesttest.Client
		want bool
	}{
		"large":           {uploadTCP(t, nil), true},
		"kept":            {uploadTCP(t, func(c *settings.Config) { c.Default.RetryBufferBytes = 1 << 20 }), false},
		"some was read":   {requesttest.BeginTCP(t, headers+"some", small), false},
		"not over TCP":    {requesttest.Begin(t, headers, small), false},
		"in chunks":       {requesttest.BeginTCP(t, message("PUT", "/a", "Transfer-Encoding: chunked"), small), false},
		"not worth while": {requesttest.BeginTCP(t, message("PUT", "/a", "Content-Length: 20000"), small), false},
	} {
		tc.c.Prepare()
		if got := tc.c.Body.CanSplice(); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The kernel moves all but the end of a body, which is read, so that nothing is missing or twice.
func TestTheKernelMovesABody(t *testing.T) {
	c := uploadTCP(t, nil)
	dst, up := requesttest.TCP(t)
	arrives := received(up)
	body := text(spliced)
	send(c, body)
	for more := true; more; {
		var err error
		if more, err = c.Body.SpliceTo(dst, 0); err != nil {
			t.Fatal(err)
		}
	}
	if left := spliced - c.Body.Total(); left <= 0 || left > 64<<10 || c.Body.Ended() {
		t.Errorf("%d bytes are left", left)
	}
	if c.Body.Replay() != policy.ReplayTooLarge || c.Body.Pieces() == 0 {
		t.Errorf("replay %v, %d pieces", c.Body.Replay(), c.Body.Pieces())
	}
	for !c.Body.Ended() {
		piece, err := c.Body.Next(0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dst.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	_ = dst.Close()
	if got := <-arrives; got != body || c.Body.Total() != spliced {
		t.Errorf("%d bytes arrived, %d counted", len(got), c.Body.Total())
	}
}

func TestHowASpliceFails(t *testing.T) {
	t.Parallel()
	short := func(c *settings.Config) { c.Default.BodyIdleTimeout = 20 * time.Millisecond }
	for name, tc := range map[string]struct {
		change func(c *settings.Config)
		before func(c *requesttest.Client, dst, up *net.TCPConn)
		want   error
	}{
		"the client ends the body": {nil, func(c *requesttest.Client, _, _ *net.TCPConn) { _ = c.Far.Close() }, request.ErrBodyCut},
		"nothing comes":            {short, func(c *requesttest.Client, _, _ *net.TCPConn) {}, request.ErrBodyTooSlow},
		"others need the slot":     {nil, func(c *requesttest.Client, _, _ *net.TCPConn) { c.Conn.TurnAway() }, request.ErrTurnedAway},
		"while it waits": {nil, func(c *requesttest.Client, _, _ *net.TCPConn) {
			time.AfterFunc(20*time.Millisecond, c.Conn.TurnAway)
		}, request.ErrTurnedAway},
		"reading was stopped": {nil, func(c *requesttest.Client, _, _ *net.TCPConn) { c.LendClient(); c.InterruptClient() }, attempt.ErrStopped},
		"it is stopped": {nil, func(c *requesttest.Client, _, _ *net.TCPConn) {
			c.LendClient()
			time.AfterFunc(20*time.Millisecond, c.InterruptClient)
		}, attempt.ErrStopped},
		"the upstream is gone": {nil, func(c *requesttest.Client, dst, _ *net.TCPConn) {
			_ = dst.CloseWrite()
			send(c, text(100_000))
		}, attempt.ErrNotTaken},
		"the client resets it": {nil, func(c *requesttest.Client, _, _ *net.TCPConn) {
			_ = c.Far.(*net.TCPConn).SetLinger(0)
			_ = c.Far.Close()
		}, attempt.ErrClientGone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := uploadTCP(t, tc.change)
			dst, up := requesttest.TCP(t)
			tc.before(c, dst, up)
			began := time.Now()
			defer func() {
				if d := time.Since(began); d > 5*time.Second { // the idle time is 10 s
					t.Errorf("noticed after %v", d)
				}
			}()
			if more, err := c.Body.SpliceTo(dst, 0); more || !errors.Is(err, tc.want) {
				t.Errorf("%v, %v, want %v", more, err, tc.want)
			}
		})
	}
}

// What came before the time was over is progress: the splice goes on, and nothing is lost.
func TestASlowSpliceGoesOn(t *testing.T) {
	t.Parallel() // it takes the second by which the deadline may be late
	c := uploadTCP(t, func(c *settings.Config) { c.Default.BodyIdleTimeout = 50 * time.Millisecond })
	dst, up := requesttest.TCP(t)
	arrives := received(up)
	if _, err := io.WriteString(c.Far, "some"); err != nil {
		t.Fatal(err)
	}
	if more, err := c.Body.SpliceTo(dst, 0); !more || err != nil || c.Body.Total() != 4 {
		t.Errorf("%v, %v, %d bytes", more, err, c.Body.Total())
	}
	_ = dst.Close()
	if got := <-arrives; got != "some" {
		t.Errorf("%q", got)
	}
}

// An upstream that takes nothing ended it, and not the client, whose time is over too.
func TestAnUpstreamThatTakesNothing(t *testing.T) {
	c := uploadTCP(t, nil)
	dst, _ := requesttest.TCP(t)
	_ = dst.SetWriteBuffer(4096)
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		_, _ = io.WriteString(c.Far, text(spliced))
	}()
	by := c.Time.Now().Add(50 * time.Millisecond)
	_ = dst.SetWriteDeadline(c.Process.Clock.At(by))
	var err error
	for more := true; more && err == nil; {
		more, err = c.Body.SpliceTo(dst, by)
	}
	if err != nil && !errors.Is(err, attempt.ErrNotTaken) {
		t.Error(err)
	}
	_ = c.Conn.NC.Close()
	<-stop
}

// Over a socket what has come is read without a wait, and how the client ends is seen.
func TestWhatHasComeIsReadWithoutAWait(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(far *net.TCPConn)
		want error
	}{
		"ended": {func(far *net.TCPConn) { _ = far.Close() }, request.ErrBodyCut},
		"reset": {func(far *net.TCPConn) { _ = far.SetLinger(0); _ = far.Close() }, attempt.ErrClientGone},
	} {
		c := requesttest.BeginTCP(t, message("PUT", "/a", "Content-Length: 10"), nil)
		c.Prepare()
		if piece, err := c.Body.NextNow(); len(piece) > 0 || err != nil {
			t.Fatalf("%s: %q, %v", name, piece, err)
		}
		if _, err := io.WriteString(c.Far, "hello"); err != nil {
			t.Fatal(err)
		}
		got := ""
		for until := time.Now().Add(10 * time.Second); got != "hello" && time.Now().Before(until); {
			piece, err := c.Body.NextNow()
			if err != nil {
				t.Fatal(err)
			}
			got += string(piece)
		}
		if c.Body.Total() != 5 || c.Body.Replay() != policy.ReplayUnfinished {
			t.Errorf("%s: %d bytes, replay %v", name, c.Body.Total(), c.Body.Replay())
		}
		tc.end(c.Far.(*net.TCPConn))
		var err error
		for until := time.Now().Add(10 * time.Second); err == nil && time.Now().Before(until); {
			_, err = c.Body.NextNow()
		}
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
