package attempt

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

const ok200 = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// A connection whose response was read whole carries the next attempt.
func TestAReleasedConnectionCarriesTheNextAttempt(t *testing.T) {
	r := newRequest(t, serve(t, saysEach(ok200)))
	for i := range 3 {
		a := r.wants(Options{})
		if got := r.body(a); got != "ok" || a.Response().Status != 200 || !a.IsSent() {
			t.Errorf("%d: status %d, body %q", i, a.Response().Status, got)
		}
		if a.Reused() != (i > 0) {
			t.Errorf("%d: reused: %v", i, a.Reused())
		}
		a.Release(a.now)
		if a.InFlight() {
			t.Error("it still has its connection")
		}
	}
}

// A connection that was dialed under memory pressure is slower, so it is used again only as long as that lasts.
func TestABoundedConnectionDoesNotOutliveThePressure(t *testing.T) {
	r := newRequest(t, serve(t, saysEach(ok200)))
	short := true
	r.env.Host.UnderPressure = func() bool { return short }
	for i, reused := range []bool{false, true, true, false, true} {
		short = i < 2
		a := r.wants(Options{})
		if a.Reused() != reused {
			t.Errorf("%d: reused: %v", i, a.Reused())
		}
		_ = r.body(a)
		a.Release(a.now)
	}
}

// A pooled connection that the upstream has closed costs no attempt: nothing was sent on it.
func TestAStaleConnectionIsReplaced(t *testing.T) {
	var connections atomic.Int32
	closed := make(chan struct{})
	r := newRequest(t, serve(t, func(c net.Conn) {
		if connections.Add(1) > 1 {
			saysEach(ok200)(c)
			return
		}
		says(ok200)(c)
		_ = c.Close()
		close(closed)
	}))
	a := r.wants(Options{})
	_ = r.body(a)
	a.Release(a.now)
	<-closed
	for range 2 { // the end may not have come yet
		a = r.wants(Options{})
		_ = r.body(a)
		a.Release(a.now)
	}
	if n := connections.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

func TestAFailedDialHasItsCause(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target, err := upstream.ParseTarget("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	g := upstream.NewGroup(target, upstream.Options{Start: testClock.Epoch()})
	defer g.Close()
	a, cause := newRequest(t, g).send(Options{})
	if cause != policy.CauseDial || a.DialError() == nil || a.Addr() != l.Addr().String() || a.SentSome() {
		t.Errorf("%v, %v at %q", cause, a.DialError(), a.Addr())
	}
	if !a.Running() || a.End(cause, 1).DialError == nil || a.End(policy.CauseReset, 2).DialError != nil {
		t.Error("the error belongs to another cause")
	}
	if a.Running() {
		t.Error("it has not ended")
	}
}

// An attempt that timed out keeps its connection, and has all the time that is left if it is resumed.
func TestAnAttemptThatTimedOutIsResumed(t *testing.T) {
	respond := make(chan struct{})
	r := newRequest(t, serve(t, func(c net.Conn) {
		_, _ = readHeaders(c)
		<-respond
		_, _ = io.WriteString(c, ok200)
	}))
	a, cause := r.send(Options{Timeout: 20 * time.Millisecond})
	if cause != policy.CauseAttemptTimeout || !a.InFlight() || !a.SentSome() || a.Begun() {
		t.Fatalf("%v; in flight %v", cause, a.InFlight())
	}
	close(respond)
	if cause := a.Resume(); cause != policy.CauseStatus || r.body(a) != "ok" {
		t.Error(cause)
	}
}

// The request's own deadline ends a resumed attempt too.
func TestTheDeadlineEndsAnAttempt(t *testing.T) {
	r := newRequest(t, serve(t, stalls))
	r.respond = r.clock.Now().Add(20 * time.Millisecond)
	a, cause := r.send(Options{})
	if cause != policy.CauseAttemptTimeout {
		t.Fatal(cause)
	}
	if cause := a.Resume(); cause != policy.CauseAttemptTimeout {
		t.Error(cause)
	}
}

// A client that leaves ends the attempt, although nobody else wakes it.
func TestAClientThatLeavesEndsTheAttempt(t *testing.T) {
	r := newRequest(t, serve(t, stalls))
	time.AfterFunc(2*unwatched, func() { _ = r.conn.Close() })
	a, cause := r.send(Options{})
	if cause != policy.CauseReset || r.ClientStaysOn() {
		t.Errorf("%v; the client stays: %v", cause, r.ClientStaysOn())
	}
	if !a.InFlight() || !a.SentSome() {
		t.Error("whoever waits for a late response has no connection")
	}
}

func TestInformationalResponsesArePassedOn(t *testing.T) {
	r := newRequest(t, serve(t, says("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"+ok200)))
	a := r.wants(Options{})
	if len(r.told) != 2 || r.told[0] != 103 || r.told[1] != 102 || r.body(a) != "ok" {
		t.Errorf("told %v", r.told)
	}
}

// A body that does not arrive at once is sent while the response is awaited.
func TestASlowBodyIsSentByThePump(t *testing.T) {
	const body = "first and the rest"
	r := newRequest(t, serve(t, func(c net.Conn) {
		_, _ = readHeaders(c)
		got := make([]byte, len(body))
		_, _ = io.ReadFull(c, got)
		_, _ = io.WriteString(c, strings.Replace(ok200, "\r\n\r\nok", "\r\n\r\n"+string(got[len(got)-2:]), 1))
		stalls(c)
	})).withBody(int64(len(body)), body[:5])
	sends := make(chan bool, 1)
	time.AfterFunc(3*InlineWait, func() {
		sends <- true
		_, _ = io.WriteString(r.conn, body[5:])
	})
	a := r.wants(Options{})
	if got := r.body(a); got != "st" || len(sends) != 1 || !r.arrived {
		t.Errorf("the upstream got %q before the rest was sent: %v", got, len(sends) == 0)
	}
	a.Release(a.now)
	if r.pool.TryPooled(&upstream.GetOptions{}) == nil {
		t.Error("the connection was not returned")
	}
}

// A response that comes before the body was sent ends the upload, and its connection serves nobody else.
func TestAnEarlyResponseEndsTheUpload(t *testing.T) {
	r := newRequest(t, serve(t, func(c net.Conn) {
		_, _ = readHeaders(c)
		_, _ = io.WriteString(c, ok200)
		_, _ = io.Copy(io.Discard, c)
	})).withBody(1<<20, "begin")
	a := r.wants(Options{})
	if !a.SendsBody() {
		t.Error("the body is not being sent")
	}
	_ = r.body(a)
	a.EndRequest()
	if a.SendsBody() || a.IsSent() {
		t.Error("the upload goes on")
	}
	a.Release(a.now)
	if r.pool.TryPooled(&upstream.GetOptions{}) != nil {
		t.Error("the connection could carry another request")
	}
}

// hedged makes an attempt with a hedge due after 10 ms, and returns both.
func hedged(r *request) (first, hedge *Attempt, cause policy.Cause) {
	r.onHedge = func() {
		hedge = r.env.New()
		hedge.Begin(2, r.clock.Now(), nil, Options{})
		r.t.Cleanup(hedge.Drop)
		first.StartHedge(hedge, Hedge{Pool: r.pool, Until: r.clock.Now().Add(testTimeout), Head: r.head})
	}
	first = r.env.New()
	r.t.Cleanup(first.Abandon)
	first.Begin(1, r.clock.Now(), nil, Options{HedgeAfter: 10 * time.Millisecond})
	cause = first.Make(false)
	return first, hedge, cause
}

// A hedge that ends first is an attempt like any other from then on.
func TestAHedgeTakesThePlaceOfTheFirst(t *testing.T) {
	var connections atomic.Int32
	inMemory(t, func(c net.Conn) {
		if connections.Add(1) == 1 {
			stalls(c)
			return
		}
		saysEach(ok200)(c)
	}, func(r *request) {
		first, hedge, _ := hedged(r)
		if !first.Overtaken() || !hedge.HedgeEnded() {
			r.t.Fatal("the hedge did not end first")
		}
		if cause, wrote := hedge.HedgeResult(); cause != policy.CauseStatus || !wrote {
			r.t.Fatal(cause, wrote)
		}
		first.Abandon()
		first.EndHedge()
		hedge.Adopt(Options{}, true)
		if got := r.body(hedge); got != "ok" {
			r.t.Errorf("body %q", got)
		}
		hedge.Release(hedge.now)
		if up := r.pool.TryPooled(&upstream.GetOptions{}); up == nil {
			r.t.Error("the connection of the hedge was not returned")
		} else {
			up.Abort()
		}
	})
}

// A hedge that fails leaves the first attempt as it was.
func TestAHedgeThatFailsLeavesTheFirst(t *testing.T) {
	var connections atomic.Int32
	var failed chan struct{}
	inMemory(t, func(c net.Conn) {
		_, _ = readHeaders(c)
		if connections.Add(1) == 1 {
			<-failed
			_, _ = io.WriteString(c, ok200)
		}
	}, func(r *request) {
		failed = make(chan struct{})
		first, hedge, _ := hedged(r)
		cause, _ := hedge.HedgeResult()
		if !first.Overtaken() || cause != policy.CauseReset || hedge.InFlight() {
			r.t.Fatal(cause)
		}
		close(failed)
		if cause := first.Continue(); cause != policy.CauseStatus || r.body(first) != "ok" {
			r.t.Error(cause)
		}
		first.EndHedge()
	})
}

// A hedge that lost ends at once.
func TestAHedgeThatLostIsStopped(t *testing.T) {
	var connections atomic.Int32
	var second chan struct{}
	inMemory(t, func(c net.Conn) {
		_, _ = readHeaders(c)
		if connections.Add(1) == 1 {
			<-second
			_, _ = io.WriteString(c, ok200)
			return
		}
		close(second)
		stalls(c)
	}, func(r *request) {
		second = make(chan struct{})
		first, hedge, cause := hedged(r)
		if cause != policy.CauseStatus || first.Overtaken() || hedge.HedgeEnded() {
			r.t.Fatal(cause)
		}
		hedge.StopHedge()
		if cause, wrote := hedge.HedgeResult(); cause != policy.CauseAttemptTimeout || !wrote || hedge.HedgeEnded() {
			r.t.Error(cause, wrote)
		}
		first.EndHedge()
		if r.body(first) != "ok" {
			r.t.Error("the first attempt lost its response")
		}
	})
}

// A fault of the pump ends its own request as if the client had left.
func TestAFaultOfThePumpIsContained(t *testing.T) {
	r := newRequest(t, serve(t, stalls)).withBody(1<<20, "begin")
	faults := make(chan any, 1)
	r.env.Host.OnFault = func(fault any) { faults <- fault }
	r.source = faulty{r}
	_, cause := r.send(Options{})
	if cause != policy.CauseReset || r.ClientStaysOn() || len(faults) != 1 {
		t.Errorf("%v; the client stays: %v; %d faults", cause, r.ClientStaysOn(), len(faults))
	}
	if err := r.failed.Load(); err == nil || !errors.Is(*err, ErrClientGone) {
		t.Error("the client's side ended with", err)
	}
}

// faulty is a body that panics when the pump reads it.
type faulty struct{ *request }

func (f faulty) Next(wait time.Duration) ([]byte, error) {
	if wait == 0 {
		panic("fault")
	}
	return f.request.Next(wait)
}
