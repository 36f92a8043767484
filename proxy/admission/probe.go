package admission

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/upstream"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// Probe configures how an upstream is probed while its breaker is not closed. If Path is empty, a
// probe connects if dials failed, and otherwise is one queued request. See
// docs/decisions/0007-probe-path.md.
type Probe struct {
	Path string // of the GET; begins with "/", may have a query, contains only what a request line may
	Host string // the Host header; "" means the endpoint's own
}

// probeAgent is the User-Agent of a probe, so that it can be recognised in the upstream's logs.
const probeAgent = "retryproxy-probe"

// request renders the probe for an endpoint with that Host. Each probe has its own connection,
// because those in the pool are older than the outage.
func (p Probe) request(form wire.Form, host string) *wire.Head {
	if p.Host == "" {
		p.Host = host
	}
	head := wire.Get(form, p.Path, p.Host, probeAgent)
	return &head
}

// probeCounts counts the finished probes by GET, by result.
type probeCounts [breaker.NumProbeResults]atomic.Uint64

// Read returns the counts.
func (c *probeCounts) read() (n [breaker.NumProbeResults]uint64) {
	for i := range c {
		n[i] = c[i].Load()
	}
	return n
}

// hasProbe reports whether the upstream is probed by GET.
func (q *Queue) hasProbe() bool { return q.byRequest.Path != "" }

// probe sends the probe that is due: by GET if there is a path, or by connecting if dials failed.
// Otherwise a queued request is the probe.
func (q *Queue) probe() {
	permit, due := q.Guard.Probe(q.elapsed())
	if !due {
		return
	}
	by := q.probeByConnecting
	if q.hasProbe() && !permit.Check() {
		by = q.probeByRequest
	}
	if !q.startProbe(func() { by(permit) }) {
		q.notProbed(permit)
	}
}

// notProbed releases the permit of a probe that is not sent because the queue is over. Nobody needs the result.
func (q *Queue) notProbed(permit breaker.Permit) {
	q.Guard.Release(permit, q.elapsed(), breaker.AttemptEnd{Kind: breaker.Unsent})
}

// startProbe runs do on a goroutine that the queue waits for in the end. It reports false if the
// queue is over.
func (q *Queue) startProbe(do func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.isOver() {
		return false
	}
	q.probes.Go(do)
	return true
}

// probeByConnecting opens a connection on which nothing is sent. For a check it opens one after the
// other until the upstream keeps one: an address may stand for several servers, see redialWaits.
func (q *Queue) probeByConnecting(permit breaker.Permit) {
	kind, addr := q.tryConnection("")
	for n := 0; permit.Check() && kind != breaker.Connected && n < len(redialWaits) && sleep(q.probeCtx, q.redialWait(kind, n)); n++ {
		kind, addr = q.tryConnection(addr)
	}
	q.HandleSignal(q.Guard.Release(permit, q.elapsed(), breaker.AttemptEnd{Kind: kind}))
}

// redialWait returns the wait before the connection after n others of a check.
func (q *Queue) redialWait(last breaker.EndKind, n int) time.Duration {
	if last == breaker.Dropped {
		return 0 // requests are lost meanwhile
	}
	return redialWaits[n]
}

// keptFor is how long a new connection lives that the upstream keeps. What accepts for an upstream that
// is down closes it as soon as its own connection to the upstream is refused.
const keptFor = 25 * time.Millisecond

// tryConnection opens a connection, to another address than avoid if there is one, and waits whether the
// upstream keeps it. It puts it into the pool then. A connection of the pool that is still open counts too:
// the upstream may allow no further one.
func (q *Queue) tryConnection(avoid string) (kind breaker.EndKind, addr string) {
	up, err := q.pool.Get(q.probeCtx, upstream.GetOptions{Fresh: true, ForceLookup: true, Avoid: avoid})
	if err != nil {
		return probeDialEnd(err), avoid
	}
	addr = up.Addr
	if kept, silent := isKept(up); silent {
		q.Guard.Accepted(q.elapsed())
		up.Release(0)
		return breaker.Connected, addr
	} else if up.Abort(); kept {
		return breaker.Connected, addr
	}
	if idle := q.pool.TryPooled(&upstream.GetOptions{}); idle != nil {
		idle.Release(0)
		return breaker.Connected, addr
	}
	return breaker.Dropped, addr
}

// isKept reports whether the upstream keeps a connection on which nothing is sent, and whether it sends
// nothing on it. The first stream of an HTTP/2 connection shows that it is kept.
func isKept(up *upstream.Conn) (kept, silent bool) {
	if up.Stream() {
		return true, true
	}
	var b [1]byte
	_ = up.SetReadDeadline(time.Now().Add(keptFor))
	n, err := up.Read(b[:])
	silent = rawsocket.IsTimeout(err)
	return silent || n > 0, silent
}

// probeDialEnd returns what the dial of a probe shows about the upstream. If the certificate cannot
// be verified, the upstream accepts connections again, and requests fail at once.
func probeDialEnd(err error) breaker.EndKind {
	var dial *upstream.DialError
	if err == nil || errors.As(err, &dial) && dial.Untrusted {
		return breaker.Connected
	}
	return DialEndKind(err)
}

// probeByRequest sends a GET. Only LateResponseTimeout ends its wait. If it hangs, the Guard has
// another probe sent, and a late response still counts.
func (q *Queue) probeByRequest(permit breaker.Permit) {
	up, e := q.sendProbeRequest(permit)
	result, e := breaker.ClassifyProbe(e)
	q.probeStats[result].Add(1)
	q.HandleSignal(q.Guard.Release(permit, q.elapsed(), e))
	if up != nil {
		drainProbe(up)
		up.Abort()
	}
}

// sendProbeRequest sends the probe and waits for the response headers. The connection is nil if
// the dial failed.
func (q *Queue) sendProbeRequest(permit breaker.Permit) (*upstream.Conn, breaker.AttemptEnd) {
	up, err := q.pool.Get(q.probeCtx, upstream.GetOptions{Fresh: true, ForceLookup: true})
	if err != nil {
		return nil, breaker.AttemptEnd{Kind: probeDialEnd(err)}
	}
	q.WatchProbe(permit, up.Addr)
	return up, q.awaitResponse(up, q.byRequest.request(up.Form(), up.Host()))
}

// probeRest bounds what is read after a probe's headers, so that the upstream is not reset while
// it writes its response.
const (
	probeRestBytes = 64 << 10
	probeRestTime  = time.Second
)

// drainProbe reads what follows the headers of the response to a probe.
func drainProbe(up *upstream.Conn) {
	_ = up.SetDeadline(time.Now().Add(probeRestTime))
	buf := buffer.Get(buffer.Small)
	defer buf.Put()
	for read := 0; read < probeRestBytes; {
		n, err := up.Read(buf.Bytes())
		if err != nil {
			return
		}
		read += n
	}
}

// LateResponseTimeout is how long to wait for the response to a probe that hangs or whose client
// has left. It is longer than most outages; after it, another probe follows.
const LateResponseTimeout = breaker.ProbeCounts

// AwaitLateResponse waits for the response to an abandoned probe and reports it to the Guard. It
// takes over the connection.
func (q *Queue) AwaitLateResponse(up *upstream.Conn, permit breaker.Permit) {
	if !q.startProbe(func() {
		e := q.awaitResponse(up, nil)
		up.Abort()
		q.HandleSignal(q.Guard.Release(permit, q.elapsed(), e))
	}) {
		up.Abort()
		q.notProbed(permit)
	}
}

// awaitResponse sends request, if there is one, and reads final response headers. It gives up
// after LateResponseTimeout and when the queue ends.
func (q *Queue) awaitResponse(up *upstream.Conn, request *wire.Head) breaker.AttemptEnd {
	_ = up.SetDeadline(time.Now().Add(LateResponseTimeout))
	stop := context.AfterFunc(q.probeCtx, func() { _ = up.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if request != nil {
		if _, err := up.Begin(request, [][]byte{request.Fields}, true, nil); err != nil {
			return breaker.AttemptEnd{Kind: breaker.Reset}
		}
	}
	status, cause := attempt.AwaitResponse(up)
	switch cause {
	case policy.CauseStatus:
	case policy.CauseMalformed, policy.CauseHeadersTooLarge:
		return FailedEnd(cause, true)
	default:
		return breaker.AttemptEnd{Kind: breaker.Reset}
	}
	return breaker.AttemptEnd{Kind: breaker.Responded, Status: status}
}

// lookUpEvery is how often the upstream's name is resolved while a probe hangs.
const lookUpEvery = time.Second

// WatchProbe detects that the upstream moves while a probe hangs at addr, as when its pod starts
// on another machine. A stopped upstream gets no second probe for a long time, because each probe
// is one more request to process. A vanished upstream never responds, and a new dial would reach
// its new address.
func (q *Queue) WatchProbe(probe breaker.Permit, addr string) {
	q.startProbe(func() {
		for sleep(q.probeCtx, lookUpEvery) && q.Guard.ProbePending(probe) {
			if q.pool.AddressRemoved(q.probeCtx, addr) {
				q.HandleSignal(q.Guard.ReplaceProbe(probe, q.elapsed()))
				return
			}
		}
	})
}
