package admission

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// redialWaits are the waits before a connection that was refused, or found no route, is dialled
// again within the same attempt. One address may stand for several servers, as that of a Service
// does, and the next connection may reach another. If one of three servers is gone, one attempt in
// 2 000 meets it seven times in a row. A dial costs the upstream nothing, so it needs no budget
// and does not count as a retry. A restart of the application is noticed 75 ms later.
var redialWaits = [...]time.Duration{0, 0, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond}

// redialWithin is how long a failed connection is dialled again, measured from the first dial.
const redialWithin = 200 * time.Millisecond

// Dial opens a connection and reports the result to the Guard. While the circuit breaker is
// closed, it dials several times.
func (q *Queue) Dial(ctx context.Context, o upstream.GetOptions) (*upstream.Conn, error) {
	began := q.elapsed()
	for _, wait := range redialWaits {
		up, err := q.dialOnce(ctx, o)
		if !q.shouldRedial(err, began) || !sleep(ctx, wait) {
			return up, err
		}
	}
	return q.dialOnce(ctx, o)
}

// dialOnce opens a connection. If it succeeds, it reports that to the Guard.
func (q *Queue) dialOnce(ctx context.Context, o upstream.GetOptions) (*upstream.Conn, error) {
	up, err := q.pool.Get(ctx, o)
	if err == nil && !up.Reused {
		q.Guard.Accepted(q.elapsed())
	}
	return up, err
}

// shouldRedial reports whether to dial again at once after err. If several addresses are known,
// all were dialled, and each failure counts against its address. Without a circuit breaker, a
// failed connection is a failed attempt.
func (q *Queue) shouldRedial(err error, began time.Duration) bool {
	var failed *upstream.DialError
	if !q.hasBreaker || !errors.As(err, &failed) || failed.Kind != upstream.KindUnreachable && !errors.Is(err, syscall.ECONNREFUSED) {
		return false
	}
	if q.pool.Several() || q.elapsed() > began+redialWithin || q.AdmitsOnlyProbes() {
		return false
	}
	q.Guard.DialRetried(q.elapsed())
	return true
}

// EndpointLost records that connections to an endpoint that worked began to fail.
func (q *Queue) EndpointLost() { q.HandleSignal(q.Guard.EndpointLost(q.elapsed())) }

// sleep waits. It reports false if ctx ended first.
func sleep(ctx context.Context, wait time.Duration) bool {
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
