package proxy

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// redialWaits are the waits before a connection that was refused, or found no
// route, is dialled again within the same attempt. One address may stand for several
// servers, as that of a Service does, and the next connection may reach another: with
// one of three gone, one attempt in 2 000 meets it seven times in a row. It costs the
// upstream nothing, so neither budget nor the count of retries. An application that
// restarts is noticed 75 ms later.
var redialWaits = [...]time.Duration{0, 0, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond}

// redialWithin bounds the time in which a connection that failed is dialled again:
// one that fails later has cost its client enough.
const redialWithin = 200 * time.Millisecond

// dial opens a connection and gives up when the client leaves.
func (x *exchange) dial(o upstream.GetOptions) (*upstream.Conn, error) {
	ctx, cancel := context.WithCancel(context.Background())
	if !x.deadline.IsZero() {
		ctx, cancel = context.WithDeadline(context.Background(), x.c.server.at(x.deadline))
	}
	defer cancel()
	o.Fresh = true
	x.startWatch(cancel)
	defer x.stopPump()
	return x.route.upstream.door.dial(ctx, o)
}

// dial opens a connection, over several tries while the circuit breaker is closed, and
// tells the Guard what speaks for the upstream and what does not.
func (d *admissionQueue) dial(ctx context.Context, o upstream.GetOptions) (*upstream.Conn, error) {
	began := d.elapsed()
	for _, wait := range redialWaits {
		up, err := d.dialOnce(ctx, o)
		if !d.shouldRedial(err, began) || !sleep(ctx, wait) {
			return up, err
		}
	}
	return d.dialOnce(ctx, o)
}

// dialOnce opens a connection, and tells the Guard of one.
func (d *admissionQueue) dialOnce(ctx context.Context, o upstream.GetOptions) (*upstream.Conn, error) {
	up, err := d.pool.Get(ctx, o)
	if err == nil && !up.Reused {
		d.handleSignal(d.guard.Accepted(d.elapsed()))
	}
	return up, err
}

// shouldRedial reports whether a dial that failed is worth another at once. Where
// several addresses are known, all were dialled, and a failure of each counts against
// it. Without a circuit breaker a failed connection is a failed attempt and no more.
func (d *admissionQueue) shouldRedial(err error, began time.Duration) bool {
	var failed *upstream.DialError
	if !d.hasBreaker || !errors.As(err, &failed) || failed.Kind != upstream.KindUnreachable && !errors.Is(err, syscall.ECONNREFUSED) {
		return false
	}
	if d.pool.Several() || d.elapsed() > began+redialWithin || d.admitsOnlyProbes() {
		return false
	}
	d.guard.DialRetried(d.elapsed())
	return true
}

// sleep waits; false: ctx ended before.
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
