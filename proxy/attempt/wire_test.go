package attempt

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/upstream"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// usual are the limits of the tests.
var usual = http1.Limits{HeaderBytes: 64 << 10, Headers: 100}

// action is what an upstream or a client does: it says a string, waits for a duration, or ends.
type action any

type ends struct{}

// acts does the actions on c, and then reads to the end of the connection.
func acts(c net.Conn, all ...action) {
	for _, do := range all {
		switch do := do.(type) {
		case string:
			_, _ = io.WriteString(c, do)
		case time.Duration:
			time.Sleep(do)
		case ends:
			_ = c.Close()
		}
	}
	_, _ = io.Copy(io.Discard, c)
}

// Whatever comes in place of a response, and when, has its cause. What the upstream got decides whether there may
// be a retry.
func TestHowAnAttemptEnds(t *testing.T) {
	const s = time.Second
	long := func(n int) string { return "X-Long: " + strings.Repeat("a", n) + "\r\n" }
	response := func(headers string) string { return "HTTP/1.1 200 OK\r\n" + headers + "Content-Length: 2\r\n\r\nok" }
	for _, c := range []struct {
		name    string
		options Options
		respond time.Duration // the deadline of the request; 0: none
		acts    []action      // of the upstream, once it has the headers of the request
		cause   policy.Cause
		after   time.Duration
		begun   bool // if it has a connection still: a part of the response came
	}{
		{"a response", Options{}, 0, []action{ok200}, policy.CauseStatus, 0, true},
		{"a late response", Options{Timeout: 3 * s}, 0, []action{2 * s, ok200}, policy.CauseStatus, 2 * s, true},
		{"headers in pieces", Options{}, 0, []action{"HTTP/1.1 20", s, "0 OK\r\nContent-Length: 2\r\n", s, "\r\nok"}, policy.CauseStatus, 2 * s, true},
		{"headers larger than a buffer", Options{}, 0, []action{response(long(buffer.Medium))}, policy.CauseStatus, 0, true},
		{"headers much larger than a buffer, in pieces", Options{}, 0, []action{"HTTP/1.1 200 OK\r\n" + long(buffer.Medium-60), s, long(2 * buffer.Medium), s, "Content-Length: 2\r\n\r\nok"}, policy.CauseStatus, 2 * s, true},
		{"headers that fill a buffer behind others", Options{}, 0, []action{"HTTP/1.1 103 A\r\n" + long(buffer.Medium/2) + "\r\n" + response(long(buffer.Medium*2/3))}, policy.CauseStatus, 0, true},
		{"headers beyond the limit", Options{Limits: http1.Limits{HeaderBytes: 1 << 10, Headers: 10}}, 0, []action{response(long(1 << 10))}, policy.CauseHeadersTooLarge, 0, false},
		{"more headers than the limit", Options{Limits: http1.Limits{HeaderBytes: 1 << 10, Headers: 10}}, 0, []action{response(strings.Repeat("A: b\r\n", 10))}, policy.CauseHeadersTooLarge, 0, false},
		{"as many headers as the limit", Options{Limits: http1.Limits{HeaderBytes: 1 << 10, Headers: 10}}, 0, []action{response(strings.Repeat("A: b\r\n", 9))}, policy.CauseStatus, 0, true},
		{"no HTTP", Options{}, 0, []action{"SSH-2.0\r\n\r\n"}, policy.CauseMalformed, 0, false},
		{"two lengths", Options{}, 0, []action{response("Content-Length: 3\r\n")}, policy.CauseMalformed, 0, false},
		{"an end", Options{}, 0, []action{s, ends{}}, policy.CauseReset, s, false},
		{"an end within headers", Options{}, 0, []action{"HTTP/1.1 200 OK\r\n", s, ends{}}, policy.CauseReset, s, false},
		{"silence", Options{Timeout: 3 * s}, 0, nil, policy.CauseAttemptTimeout, 3 * s, false},
		{"silence until the deadline", Options{Timeout: 3 * s}, 2 * s, nil, policy.CauseAttemptTimeout, 2 * s, false},
		{"silence until the deadline, without an attempt timeout", Options{}, 2 * s, nil, policy.CauseAttemptTimeout, 2 * s, false},
		{"silence within headers", Options{Timeout: 3 * s}, 0, []action{"HTTP/1.1 200 OK\r\n"}, policy.CauseAttemptTimeout, 3 * s, true},
		{"silence after an informational response", Options{Timeout: 3 * s}, 0, []action{s, "HTTP/1.1 103 A\r\n\r\n"}, policy.CauseAttemptTimeout, 3 * s, true},
		{"as many informational responses as allowed", Options{}, 0, []action{strings.Repeat("HTTP/1.1 102 A\r\n\r\n", MaxInformational-1) + ok200}, policy.CauseStatus, 0, true},
		{"more informational responses", Options{}, 0, []action{strings.Repeat("HTTP/1.1 102 A\r\n\r\n", MaxInformational) + ok200}, policy.CauseMalformed, 0, false},
		{"an upgrade that nobody asked for", Options{}, 0, []action{"HTTP/1.1 101 A\r\nConnection: upgrade\r\nUpgrade: b\r\n\r\n"}, policy.CauseMalformed, 0, false},
		{"an upgrade", Options{Upgrade: true}, 0, []action{"HTTP/1.1 101 A\r\nConnection: upgrade\r\nUpgrade: b\r\n\r\n"}, policy.CauseStatus, 0, true},
		{"an upgrade to nothing", Options{Upgrade: true}, 0, []action{"HTTP/1.1 101 A\r\n\r\n"}, policy.CauseMalformed, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, func(conn net.Conn) {
				_, _ = readHeaders(conn)
				acts(conn, c.acts...)
			}, func(r *request) {
				if c.options.Limits == (http1.Limits{}) {
					c.options.Limits = usual
				}
				if c.respond > 0 {
					r.respond = r.clock.Now().Add(c.respond)
				}
				began := time.Now()
				a, cause := r.send(c.options)
				if took := time.Since(began); cause != c.cause || took != c.after || a.Begun() != c.begun {
					t.Errorf("%v after %v, begun %v", cause, took, a.Begun())
				}
				if keeps := cause == policy.CauseStatus || cause == policy.CauseAttemptTimeout; a.InFlight() != keeps || !a.IsSent() || a.SentSome() != keeps {
					t.Errorf("in flight %v, sent %v, some of it %v", a.InFlight(), a.IsSent(), a.SentSome())
				}
				if cause == policy.CauseStatus && a.Response().Status == 200 && r.body(a) != "ok" {
					t.Error("the body is another")
				}
				a.Abandon()
			})
		})
	}
}

// The upstream gets the request as it is framed, whenever its parts come from the client.
func TestWhatTheUpstreamGets(t *testing.T) {
	const s = time.Second
	chunks := http1.Framing{Kind: http1.BodyChunked}
	big := strings.Repeat("a", 3*buffer.Medium)
	for _, c := range []struct {
		name  string
		begun string   // is here
		rest  []action // of the client
		left  int      // bytes of rest
		frame http1.Framing
		trail []http1.Header
		got   string
	}{
		{"all is here", "whole", nil, 0, http1.Framing{}, nil, "whole"},
		{"nothing is here", "", []action{s, "later"}, 5, http1.Framing{}, nil, "later"},
		{"a part is here", "first,", []action{s, "then,", s, "last"}, 9, http1.Framing{}, nil, "first,then,last"},
		{"the rest comes soon", "first,", []action{InlineWait / 4, "then,", InlineWait / 4, "last"}, 9, http1.Framing{}, nil, "first,then,last"},
		{"a large one", big, []action{big, s, big}, 2 * len(big), http1.Framing{}, nil, big + big + big},
		{"a chunk", "whole", nil, 0, chunks, nil, "5\r\nwhole\r\n0\r\n\r\n"},
		{"chunks", "first,", []action{s, "then,", s, "last"}, 9, chunks, nil, "6\r\nfirst,\r\n5\r\nthen,\r\n4\r\nlast\r\n0\r\n\r\n"},
		{"chunks, none of which is here", "", []action{s, "last"}, 4, chunks, nil, "4\r\nlast\r\n0\r\n\r\n"},
		{"trailers", "whole", nil, 0, chunks, []http1.Header{http1.NewHeader("A", "b")}, "5\r\nwhole\r\n0\r\nA: b\r\n\r\n"},
		{"trailers that come later", "first,", []action{s, "last"}, 4, chunks, []http1.Header{http1.NewHeader("A", "b")}, "6\r\nfirst,\r\n4\r\nlast\r\n0\r\nA: b\r\n\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := make(chan string, 1)
			inMemory(t, func(conn net.Conn) {
				_, _ = readHeaders(conn)
				b := make([]byte, len(c.got))
				_, _ = io.ReadFull(conn, b)
				got <- string(b)
				acts(conn, ok200)
			}, func(r *request) {
				r.withBody(int64(len(c.begun)+c.left), c.begun)
				if c.frame.Kind != 0 {
					r.framing = c.frame
				}
				r.trails = c.trail
				go func() {
					for _, do := range c.rest {
						switch do := do.(type) {
						case string:
							_, _ = io.WriteString(r.conn, do)
						case time.Duration:
							time.Sleep(do)
						}
					}
				}()
				a := r.wants(Options{Limits: usual})
				if body := <-got; body != c.got {
					t.Errorf("%.100q of %d bytes", body, len(body))
				}
				if !a.IsSent() || !r.arrived || r.body(a) != "ok" {
					t.Errorf("sent %v, arrived %v", a.IsSent(), r.arrived)
				}
				a.Release(a.now)
				if up := r.pool.TryPooled(&upstream.GetOptions{}); up == nil {
					t.Error("the connection cannot be reused")
				} else {
					up.Abort()
				}
			})
		})
	}
}

// An upstream that takes no more of a request may have responded before. That response is waited for, but not long.
func TestAnUpstreamThatTakesNoMore(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name  string
		here  bool // the begin of the body is; otherwise it comes later
		acts  []action
		cause policy.Cause
	}{
		{"it responds", true, []action{s / 2, "HTTP/1.1 413 A\r\nContent-Length: 2\r\n\r\nok"}, policy.CauseStatus},
		{"it is silent", true, nil, policy.CauseReset},
		{"it responds late", true, []action{4 * s, "HTTP/1.1 413 A\r\nContent-Length: 2\r\n\r\nok"}, policy.CauseReset},
		{"it responds, to a body that comes later", false, []action{s * 5 / 2, "HTTP/1.1 413 A\r\nContent-Length: 2\r\n\r\nok"}, policy.CauseStatus},
		{"it is silent, for a body that comes later", false, nil, policy.CauseReset},
	} {
		inMemory(t, func(conn net.Conn) {
			_, _ = readHeaders(conn)
			_ = conn.SetReadDeadline(past)
			acts(noReader{conn}, c.acts...)
			time.Sleep(time.Minute)
		}, func(r *request) {
			r.withBody(1<<20, "begin")
			if !c.here {
				r.withBody(1<<20, "")
				time.AfterFunc(s, func() { _, _ = io.WriteString(r.conn, "begin") })
			}
			began := time.Now()
			a := r.env.New()
			a.Begin(1, r.clock.Now(), nil, Options{Limits: usual, BodyIdle: s})
			cause := a.Make(false)
			if cause != c.cause || a.IsSent() {
				t.Errorf("%s: %v, sent %v", c.name, cause, a.IsSent())
			}
			if took := time.Since(began); cause == policy.CauseReset && took > 5*s {
				t.Errorf("%s: it is waited for %v", c.name, took)
			}
			a.Abandon()
		})
	}
}

// noReader is a connection that is not read.
type noReader struct{ net.Conn }

func (noReader) Read([]byte) (int, error) { return 0, io.EOF }

// A body is read to the end that its framing announces, and what is missing or too much is noticed.
func TestBodies(t *testing.T) {
	const s = time.Second
	head := func(h string) string { return "HTTP/1.1 200 OK\r\n" + h + "\r\n\r\n" }
	big := strings.Repeat("a", 5*buffer.Large/2)
	for _, c := range []struct {
		name string
		acts []action
		body string
		err  error // that ends it
		pool bool  // its connection serves another request
	}{
		{"a length", []action{head("Content-Length: 5") + "he", s, "llo"}, "hello", io.EOF, true},
		{"a large one", []action{head("Content-Length: 163840") + big[:100], big[100:]}, big, io.EOF, true},
		{"more than its length", []action{head("Content-Length: 5") + "hello, world"}, "hello", io.EOF, false},
		{"less than its length", []action{head("Content-Length: 5") + "hell", s, ends{}}, "hell", ErrCut, false},
		{"it pauses too long", []action{head("Content-Length: 5") + "hell", testTimeout + s, "o"}, "hell", errTimeout, false},
		{"no body", []action{"HTTP/1.1 204 A\r\n\r\n"}, "", io.EOF, true},
		{"a length of 0", []action{head("Content-Length: 0")}, "", io.EOF, true},
		{"chunks", []action{head("Transfer-Encoding: chunked") + "2\r\nhe\r\n3", s, "\r\nllo\r\n0\r\n", s, "\r\n"}, "hello", io.EOF, true},
		{"chunks without an end", []action{head("Transfer-Encoding: chunked") + "5\r\nhello\r\n", s, ends{}}, "hello", ErrCut, false},
		{"broken chunks", []action{head("Transfer-Encoding: chunked") + "5\r\nhello\r\nx\r\n"}, "hello", ErrCut, false},
		{"trailers beyond the limit", []action{head("Transfer-Encoding: chunked") + "5\r\nhello\r\n0\r\nA: " + strings.Repeat("a", 64<<10) + "\r\n\r\n"}, "hello", ErrTrailersTooLarge, false},
		{"until the connection ends", []action{head("X: y") + "he", s, "llo", s, ends{}}, "hello", io.EOF, false},
		{"the connection is to be closed", []action{head("Content-Length: 5\r\nConnection: close") + "hello"}, "hello", io.EOF, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, func(conn net.Conn) {
				_, _ = readHeaders(conn)
				acts(conn, c.acts...)
			}, func(r *request) {
				a := r.wants(Options{Limits: usual})
				a.Body().HeadersSent()
				var got strings.Builder
				var err error
				for err == nil {
					var piece []byte
					piece, err = a.Body().Next(testTimeout)
					got.Write(piece)
				}
				var timeout net.Error
				if got.String() != c.body || !errors.Is(err, c.err) && !(c.err == errTimeout && errors.As(err, &timeout) && timeout.Timeout()) {
					t.Errorf("%.100q, %v", got.String(), err)
				}
				if a.Body().Ended() != (c.err == io.EOF) {
					t.Errorf("ended: %v", a.Body().Ended())
				}
				if err != io.EOF {
					a.Drop()
				} else {
					a.Release(a.now)
				}
				if a.InFlight() {
					t.Error("the attempt has its connection still")
				}
				up := r.pool.TryPooled(&upstream.GetOptions{})
				if (up != nil) != c.pool {
					t.Errorf("the connection serves another: %v", up != nil)
				}
				if up != nil {
					up.Abort()
				}
			})
		})
	}
}

var errTimeout = errors.New("a timeout")

// A connection is not used again if the upstream may not have read the whole request from it.
func TestARequestThatMayGoUnread(t *testing.T) {
	for _, c := range []struct {
		method string
		expect bool // the client waits for a 100, which does not come
		asks   bool // the 100 comes
		reuses bool
	}{
		{"PUT", false, false, true},
		{"POST", false, false, true},
		{"GET", false, false, false},
		{"HEAD", false, false, false},
		{"DELETE", false, false, false},
		{"PUT", true, true, true},
		{"GET", true, true, false},
		{"PUT", true, false, false},
	} {
		inMemory(t, func(conn net.Conn) {
			_, _ = readHeaders(conn)
			if c.asks {
				_, _ = io.WriteString(conn, "HTTP/1.1 100 A\r\n\r\n")
			}
			if !c.expect || c.asks {
				_, _ = io.ReadFull(conn, make([]byte, 4))
			}
			acts(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}, func(r *request) {
			r.withBody(4, "body")
			if c.expect {
				r.withBody(4, "")
				go func() {
					time.Sleep(time.Second)
					_, _ = io.WriteString(r.conn, "body")
				}()
			}
			r.method = c.method
			a := r.wants(Options{Limits: usual, Expect: c.expect})
			a.EndRequest()
			a.Release(a.now)
			up := r.pool.TryPooled(&upstream.GetOptions{})
			if (up != nil) != c.reuses {
				t.Errorf("%+v: reused: %v", c, up != nil)
			}
			if up != nil {
				up.Abort()
			}
			_ = r.conn.Close()
			time.Sleep(time.Second) // until the client has noticed
		})
	}
}

// A client that leaves while its body is sent ends the attempt, whatever the upstream does.
func TestAClientThatLeavesDuringItsBody(t *testing.T) {
	for _, after := range []time.Duration{InlineWait / 2, time.Second} {
		inMemory(t, stalls, func(r *request) {
			r.withBody(100, "begin")
			time.AfterFunc(after, func() { _ = r.conn.Close() })
			began := time.Now()
			a, cause := r.send(Options{Limits: usual})
			if cause != policy.CauseReset || r.ClientStaysOn() || a.IsSent() || !a.SentSome() || time.Since(began) != after {
				t.Errorf("%v after %v, sent %v", cause, time.Since(began), a.IsSent())
			}
		})
	}
}

// A client that leaves ends a dial at once, and nothing is sent then, even if the dial succeeds at that moment.
func TestAClientThatLeavesDuringTheDial(t *testing.T) {
	for _, succeeds := range []bool{false, true} {
		inMemory(t, stalls, func(r *request) {
			time.AfterFunc(time.Second, func() { _ = r.conn.Close() })
			r.dial = func(ctx context.Context) { <-ctx.Done() }
			r.dialsOn = succeeds
			began := time.Now()
			a, cause := r.send(Options{Limits: usual})
			if cause != policy.CauseDial || r.ClientStaysOn() || a.InFlight() || a.SentSome() || time.Since(began) != time.Second {
				t.Errorf("the dial succeeds %v: %v after %v, in flight %v", succeeds, cause, time.Since(began), a.InFlight())
			}
		})
	}
}

// A hedge sends the same body as the first attempt, in the same framing.
func TestAHedgeSendsTheWholeBody(t *testing.T) {
	for _, c := range []struct {
		frame http1.Framing
		trail []http1.Header
		got   string
	}{
		{http1.Framing{Kind: http1.BodyLength, Length: 10}, nil, "first,last"},
		{http1.Framing{Kind: http1.BodyChunked}, nil, "6\r\nfirst,\r\n4\r\nlast\r\n0\r\n\r\n"},
		{http1.Framing{Kind: http1.BodyChunked}, []http1.Header{http1.NewHeader("A", "b")}, "6\r\nfirst,\r\n4\r\nlast\r\n0\r\nA: b\r\n\r\n"},
	} {
		var got [2]string
		var n atomic.Int32
		inMemory(t, func(conn net.Conn) {
			i := n.Add(1) - 1
			_, _ = readHeaders(conn)
			b := make([]byte, len(c.got))
			_, _ = io.ReadFull(conn, b)
			got[i] = string(b)
			if i == 1 {
				acts(conn, time.Second, ok200)
			}
			stalls(conn)
		}, func(r *request) {
			r.withBody(10, "first,")
			r.framing, r.trails = c.frame, c.trail
			time.AfterFunc(time.Second, func() { _, _ = io.WriteString(r.conn, "last") })
			first, hedge, cause := hedged(r)
			if !first.Overtaken() {
				t.Errorf("%v: the hedge did not end first: %v", c, cause)
				first.Abandon()
				return
			}
			first.Abandon()
			first.EndHedge()
			hedge.Adopt(Options{Limits: usual}, true)
			if hedge.Response().Status != 200 || got[1] != c.got {
				t.Errorf("the hedge sent %q", got[1])
			}
		})
	}
}

// Both attempts of a hedged request get the time of the later one.
func TestAHedgeHasTheWholeAttemptTimeout(t *testing.T) {
	inMemory(t, stalls, func(r *request) {
		var first, hedge *Attempt
		r.onHedge = func() {
			hedge = r.env.New()
			hedge.Begin(2, r.clock.Now(), nil, Options{})
			first.StartHedge(hedge, Hedge{Pool: r.pool, Until: r.clock.Now().Add(3 * time.Second), Head: func(wire.Form, string) wire.Head {
				return wire.Head{Fields: []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")}
			}})
		}
		first = r.env.New()
		began := time.Now()
		first.Begin(1, r.clock.Now(), nil, Options{HedgeAfter: time.Second, Timeout: 3 * time.Second})
		cause := first.Make(false)
		if took := time.Since(began); !first.Overtaken() && cause != policy.CauseAttemptTimeout || took != 4*time.Second {
			t.Errorf("%v after %v", cause, took)
		}
		if cause, _ := hedge.HedgeResult(); cause != policy.CauseAttemptTimeout || time.Since(began) != 4*time.Second {
			t.Errorf("the hedge: %v after %v", cause, time.Since(began))
		}
		first.Abandon()
		first.EndHedge()
		hedge.Drop()
	})
}

// The response to HEAD has no body, whatever length it declares.
func TestTheResponseToHEADHasNoBody(t *testing.T) {
	inMemory(t, saysEach("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), func(r *request) {
		r.method = "HEAD"
		for n := range 2 {
			a := r.wants(Options{Limits: usual})
			if got := r.body(a); got != "" || a.Reused() != (n > 0) {
				t.Errorf("%q, on a connection used before: %v", got, a.Reused())
			}
			a.Release(a.now)
		}
		if len(r.connected) != 2 || r.connected[0] != "192.0.2.1:80" || r.connected[1] != r.connected[0] {
			t.Errorf("connected to %q", r.connected)
		}
	})
}

// A fault of the goroutine that dials is one of the goroutine that makes the attempt, with the place of it.
func TestAFaultOfADialIsTheAttempts(t *testing.T) {
	inMemory(t, stalls, func(r *request) {
		r.dial = func(context.Context) { panic("a fault") }
		defer func() {
			if err, _ := recover().(error); err == nil || !strings.Contains(err.Error(), "a fault") || !strings.Contains(err.Error(), "wire_test.go") {
				t.Errorf("%v", err)
			}
		}()
		_, cause := r.send(Options{Limits: usual})
		t.Error(cause)
	})
}
