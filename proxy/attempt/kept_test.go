package attempt

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/poison"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// readAhead reads the whole body ahead and returns what ended it.
func readAhead(a *Attempt) error {
	for {
		if _, err := a.Body().ReadAhead(a.now().Add(testTimeout)); err != nil {
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
			r := newRequest(t, serve(t, says(response)))
			a := r.wants(Options{})
			if err := readAhead(a); err != io.EOF {
				t.Fatal(err)
			}
			var k Kept
			var s spans
			a.Keep(&k, false, a.now)
			for _, compact := range []bool{false, true} {
				if compact {
					if saved := k.Compact(&s); saved <= 0 {
						t.Errorf("compacting saved %d bytes", saved)
					}
					k.Restore(http1.Limits{}, []byte("GET"))
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
			if k.Body() != nil || poison.On && s.checked < 2 {
				t.Errorf("after Release it has the body %q; %d buffers were checked", k.Body(), s.checked)
			}
		})
	}
}

// A response that was cut off is kept as one, and its connection serves nobody else.
func TestAResponseThatWasCutOffIsKeptAsOne(t *testing.T) {
	r := newRequest(t, serve(t, func(c net.Conn) {
		says("HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nno chunk\r\n")(c)
		stalls(c) // so only the attempt knows that the connection is no good
	}))
	a := r.wants(Options{})
	if err := readAhead(a); err != ErrCut {
		t.Fatal(err)
	}
	var k Kept
	a.Keep(&k, true, a.now)
	if !k.Cut() || string(k.Body()) != "hello" {
		t.Errorf("cut %v, body %q", k.Cut(), k.Body())
	}
	if r.pool.TryPooled(&upstream.GetOptions{}) != nil {
		t.Error("its connection could be used again")
	}
	k.Release(&spans{})
}

// What is read ahead of the relay leaves the headers where they are.
func TestReadingAheadKeepsTheHeaders(t *testing.T) {
	body := strings.Repeat("0123456789abcdef", 4<<10)
	a := newRequest(t, serve(t, says("HTTP/1.1 200 OK\r\nX-Own: v\r\nContent-Length: 65536\r\n\r\n"+body))).wants(Options{})
	if err := readAhead(a); err != io.EOF {
		t.Fatal(err)
	}
	own, _ := a.Response().Lookup("X-Own")
	if string(own) != "v" || string(a.Body().Held()) != body {
		t.Errorf("X-Own is %q, and %d bytes are held", own, len(a.Body().Held()))
	}
	a.Abandon()
}
