package attempt

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Target is where an attempt is sent, and how it gets a connection there.
type Target struct {
	Pool        *upstream.Group
	Choice      upstream.Choice // which endpoint
	MaxIdle     time.Duration   // excludes pooled connections that were idle for longer; 0 means any
	HTTP1       bool            // only HTTP/1.1, which can be upgraded
	DialTimeout time.Duration   // 0: the default
	DialBy      clock.Instant   // when a dial ends at the latest; zero: never
	Now         time.Duration   // the time by the pool's clock; 0 means read the clock
}

// A dial that found no free descriptor is tried again after minDescriptorWait, then after twice as
// long each time, up to MaxDescriptorRetry.
const (
	minDescriptorWait  = 5 * time.Millisecond
	MaxDescriptorRetry = 250 * time.Millisecond
)

// connect gets a connection: a pooled one at once, unless fresh is set, otherwise a dialled one while the
// client is watched.
func (a *Attempt) connect(fresh bool) policy.Cause {
	t := a.owner().Target(a)
	a.unchecked = a.source().IsInMemory(inlineBody)
	o := upstream.GetOptions{
		Fresh: fresh, ForceLookup: fresh, Avoid: t.Choice.Avoid, Key: t.Choice.Key, Endpoint: t.Pool.Choose(t.Choice), Unchecked: a.unchecked,
		MaxIdle: t.MaxIdle, HTTP1: t.HTTP1, DialTimeout: t.DialTimeout, Now: t.Now,
	}
	up, err := a.connection(&t, &o)
	if err != nil {
		return a.DialFailed(err)
	}
	a.use(up)
	a.owner().Connected(a, up)
	return policy.CauseStatus
}

// connection returns a pooled connection, unless a fresh one is asked for, or dials one. If no
// descriptor is left, the owner frees one or waits. The attempt does not begin before a descriptor is
// free.
func (a *Attempt) connection(t *Target, o *upstream.GetOptions) (*upstream.Conn, error) {
	var since clock.Instant
	for wait := minDescriptorWait; ; wait = min(2*wait, MaxDescriptorRetry) {
		if !o.Fresh {
			if up := t.Pool.TryPooled(o); up != nil {
				return up, nil
			}
		}
		up, err := a.dial(o, t.DialBy)
		now := a.client().Tick()
		o.Now = 0 // closing took time
		if !outOfDescriptors(err) {
			return up, err
		}
		if since.IsZero() {
			since = now
		}
		if !a.owner().AwaitDescriptor(a, wait, since) {
			return nil, err
		}
		a.began = a.client().LastTick() // nothing could be done before
	}
}

// outOfDescriptors reports whether a dial failed because no file descriptor was left, which is not
// the upstream's fault.
func outOfDescriptors(err error) bool {
	var dial *upstream.DialError
	return errors.As(err, &dial) && dial.Kind == upstream.KindNoDescriptors
}

// dial opens a connection and gives up when the client leaves. It dials in a goroutine of its own:
// package net needs 8 KiB of stack for that, which this goroutine would keep through every wait.
func (a *Attempt) dial(asked *upstream.GetOptions, until clock.Instant) (up *upstream.Conn, err error) {
	ctx, cancel := a.host().Clock.Context(until)
	defer cancel()
	o := new(upstream.GetOptions)
	*o = *asked
	o.Fresh, o.BoundUnsent = true, a.host().UnderPressure()
	a.upload.startWatch(cancel)
	defer a.upload.stop()
	dialled := make(chan any)
	go func() {
		defer func() {
			fault := recover()
			if fault != nil { // its stack is that of this goroutine
				fault = fmt.Errorf("%v\n%s", fault, debug.Stack())
			}
			dialled <- fault
		}()
		up, err = a.owner().Dial(ctx, *o)
	}()
	if fault := <-dialled; fault != nil {
		panic(fault)
	}
	return up, err
}

// use takes the connection that the attempt is made on.
func (a *Attempt) use(up *upstream.Conn) {
	a.conn.use(up)
	a.got(0)
	a.reused, a.endpoint, a.addr, a.dialErr = up.Reused, up.Endpoint, up.Addr, nil
	a.progress.Store(sending)
	if a.upload.lastPiece.Load() { // a load is cheaper than a store
		a.upload.lastPiece.Store(false)
	}
}

// DialFailed records that the attempt got no connection, and returns the cause.
func (a *Attempt) DialFailed(err error) policy.Cause {
	a.dialErr, a.endpoint = nil, nil
	if !errors.As(err, &a.dialErr) {
		return policy.CauseDial
	}
	a.addr = a.dialErr.Addr
	switch {
	case a.dialErr.Untrusted:
		return policy.CauseUntrusted
	case a.dialErr.Kind == upstream.KindTLS:
		return policy.CauseTLS
	}
	return policy.CauseDial
}
