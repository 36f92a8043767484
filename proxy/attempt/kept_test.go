package attempt

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// testTimeout bounds what must happen soon.
const testTimeout = 10 * time.Second

var limits http1.Limits

// serve runs an upstream that lets handle respond on each connection.
func serve(t *testing.T, handle func(net.Conn)) *upstream.Group {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target, err := upstream.ParseTarget("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	g := upstream.NewGroup(target, upstream.Options{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(testTimeout))
				handle(c)
			}()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
		g.Close()
	})
	return g
}

// says responds to one request without a body, and ends the connection.
func says(response string) func(net.Conn) {
	return func(c net.Conn) {
		if readHeaders(c) == nil {
			_, _ = io.WriteString(c, response)
		}
	}
}

// readHeaders reads to the end of request headers.
func readHeaders(c net.Conn) error {
	var got []byte
	for b := make([]byte, 1); !strings.HasSuffix(string(got), "\r\n\r\n"); {
		if _, err := c.Read(b); err != nil {
			return err
		}
		got = append(got, b...)
	}
	return nil
}

// responded makes an attempt at g that has read response headers.
func responded(t *testing.T, g *upstream.Group) *Attempt {
	t.Helper()
	up, err := g.Get(context.Background(), upstream.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(up.Abort)
	_ = up.SetDeadline(time.Now().Add(testTimeout))
	clk := clock.New()
	a := &Attempt{Host: &Host{Clock: &clk, UnderPressure: func() bool { return false }}, Buffers: new(buffer.Cache)}
	a.Use(up)
	if _, err := up.Writev([][]byte{[]byte("GET / HTTP/1.1\r\n\r\n")}); err != nil {
		t.Fatal(err)
	}
	if cause := a.ReadFinalHeaders(Plain{}, limits, []byte("GET")); cause != policy.CauseStatus {
		t.Fatal(cause)
	}
	a.ReadBody(Plain{}, limits)
	return a
}

// readAhead reads the whole body ahead and returns what ended it.
func readAhead(a *Attempt) error {
	for {
		if _, err := a.Body().ReadAhead(a.Host.Clock.Now().Add(testTimeout)); err != nil {
			return err
		}
	}
}

// spans counts the checks of buffers that go back.
type spans struct{ checked int }

func (s *spans) CheckDetached([]byte) { s.checked++ }

func TestAKeptResponseIsWholeAfterItsAttemptServesAnother(t *testing.T) {
	for name, response := range map[string]string{
		"with a length": "HTTP/1.1 503 Busy\r\nX-Own: v\r\nContent-Length: 5\r\n\r\nhello",
		"chunked":       "HTTP/1.1 503 Busy\r\nX-Own: v\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\nX-End: t\r\n\r\n",
		"until close":   "HTTP/1.1 503 Busy\r\nX-Own: v\r\n\r\nhello",
	} {
		t.Run(name, func(t *testing.T) {
			a := responded(t, serve(t, says(response)))
			if err := readAhead(a); err != io.EOF {
				t.Fatal(err)
			}
			var k Kept
			var s spans
			a.Keep(&k, false)
			a.Abort()
			for _, compact := range []bool{false, true} {
				if compact {
					if saved := k.Compact(&s); saved <= 0 {
						t.Errorf("compacting saved %d bytes", saved)
					}
					k.Restore(limits, []byte("GET"))
				}
				own, _ := k.Response().Lookup("X-Own")
				if k.Response().Status != 503 || string(own) != "v" || string(k.Body()) != "hello" || k.Cut() {
					t.Errorf("kept %d with X-Own %q, body %q", k.Response().Status, own, k.Body())
				}
				if trailers := k.Trailers(); (name == "chunked") != (len(trailers) == 1 && string(trailers[0].Value) == "t") {
					t.Errorf("trailers %q", trailers)
				}
			}
			k.Release(&s)
			if k.Body() != nil || s.checked < 2 {
				t.Errorf("after Release it has the body %q; %d buffers were checked", k.Body(), s.checked)
			}
		})
	}
}

// A response that was cut off is kept as one, and its connection serves nobody else.
func TestAResponseThatWasCutOffIsKeptAsOne(t *testing.T) {
	a := responded(t, serve(t, says("HTTP/1.1 503 Busy\r\nContent-Length: 9\r\n\r\nhello")))
	if err := readAhead(a); err != ErrCut {
		t.Fatal(err)
	}
	var k Kept
	a.Keep(&k, true)
	if !k.Cut() || string(k.Body()) != "hello" {
		t.Errorf("cut %v, body %q", k.Cut(), k.Body())
	}
	if !a.Response().Close {
		t.Error("its connection could be used again")
	}
	a.Abort()
	k.Release(&spans{})
}

// What is read ahead of the relay leaves the headers where they are.
func TestReadingAheadKeepsTheHeaders(t *testing.T) {
	body := strings.Repeat("0123456789abcdef", 4<<10)
	a := responded(t, serve(t, says("HTTP/1.1 200 OK\r\nX-Own: v\r\nContent-Length: 65536\r\n\r\n"+body)))
	if err := readAhead(a); err != io.EOF {
		t.Fatal(err)
	}
	own, _ := a.Response().Lookup("X-Own")
	if string(own) != "v" || string(a.Body().Held()) != body {
		t.Errorf("X-Own is %q, and %d bytes are held", own, len(a.Body().Held()))
	}
	a.Body().Release()
}
