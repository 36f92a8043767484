package upstream

import (
	"context"
	"errors"
	"slices"
	"time"
)

// minShare is the minimum time for one address before the next one is tried, but never more
// than a quarter of the total. A name with hundreds of addresses must not leave each too
// little for one round trip. So at least four silent addresses are always tried, and twelve
// with the default timeout. Addresses that refuse at once cost almost no time.
const minShare = 250 * time.Millisecond

// groupDial is one dial over all addresses.
type groupDial struct {
	ctx      context.Context // of the whole dial, ends at deadline
	deadline time.Time
	total    time.Duration // from the start to deadline
	hurried  bool          // the deadline is the caller's own, before GetOptions.DialTimeout
}

// Get returns a pooled connection (see TryPooled) or dials: first the chosen address and,
// while dials fail, every other. Only lookups and dials use ctx. They end at
// GetOptions.DialTimeout or with ctx, whichever is first. The error is always a *DialError. Its Kind
// is not KindDNS if the name was ever resolved.
func (g *Group) Get(ctx context.Context, o GetOptions) (*Conn, error) {
	if g.singlePool != nil {
		c, err := g.singlePool.Get(ctx, o)
		g.reportDialError(err)
		return c, err
	}
	if !o.ForceLookup {
		if o.Endpoint == nil {
			o.Endpoint = g.Choose(o.choice())
		}
		if c := g.TryPooled(&o); c != nil {
			return c, nil
		}
	}
	o.waitsSince = time.Now()
	for {
		c, err := g.getWithin(ctx, o)
		var dial *DialError
		if err == nil || ctx.Err() != nil || !errors.As(err, &dial) || dial.Kind != KindNoStream {
			return c, err
		}
	}
}

// getWithin is Get for GetOptions.DialTimeout at most. A request for which no endpoint has a free stream has waited
// for one as long. It keeps its place among those that wait when it looks at all endpoints again.
func (g *Group) getWithin(ctx context.Context, o GetOptions) (*Conn, error) {
	own, _ := ctx.Deadline()
	ctx, cancel := context.WithTimeout(ctx, o.dialTimeout())
	defer cancel()
	at, _ := ctx.Deadline() // the caller's own, if that is earlier
	d := &groupDial{ctx: ctx, deadline: at, total: time.Until(at), hurried: at.Equal(own)}
	o.looksAgain = !d.hurried
	if err := g.ensureResolved(ctx, &o, d.total); err != nil {
		failed := &DialError{Kind: classifyLookup(ctx, err), Addr: g.target.Address, Err: err}
		g.dnsErrors[failed.Kind].Add(1)
		g.reportDialError(failed)
		return nil, failed
	}
	return g.dialAny(d, &o)
}

// reportDialError passes on a failed connection, unless it was canceled.
func (g *Group) reportDialError(err error) {
	var dial *DialError
	if g.options.OnDialError != nil && errors.As(err, &dial) && dial.Kind != KindCanceled && dial.Kind != KindNoStream {
		g.options.OnDialError(dial)
	}
}

// dialAny tries every address in order, each with its share of the remaining time. If one that works has no stream
// free, those that are ejected or unhealthy are left out, and the request waits for it unless another one has one.
func (g *Group) dialAny(d *groupDial, o *GetOptions) (*Conn, error) {
	var failed []error
	var last *DialError
	var full *Endpoint // the first one without a free stream
	trusted := false   // one address failed for another reason
	picker := g.picker.Load()
	first := o.Endpoint
	if first == nil { // the addresses were not known yet
		first = picker.choose(o.choice(), g)
	}
	order := picker.dialOrder(first, o.Avoid, g.random)
	try := func(m *Endpoint, left int) *Conn {
		c, err := d.dialOne(m, o, left)
		if err != nil {
			g.reportDialError(err)
			failed, last = append(failed, err.Err), err
			trusted = trusted || !err.Untrusted
		}
		return c
	}
	o.dontQueue = len(order) > 1
	for i, m := range order {
		if full != nil && m.isUnavailable() && !slices.Contains(picker.usable, m) {
			continue
		}
		if c := try(m, len(order)-i); c != nil {
			return c, nil
		}
		if last.Kind == KindNoDescriptors || d.isOver() {
			full = nil
			break
		}
		if full == nil && last.Kind == KindNoStream {
			full = m
		}
	}
	if full != nil {
		o.dontQueue = false
		if c := try(full, 1); c != nil {
			return c, nil
		}
	}
	end := *last
	end.Untrusted = !trusted
	return nil, joinErrors(end, failed)
}

// dialOne connects to m within the share of one of the left addresses. A failed handshake
// counts like a failed connect, since connections are only used after both.
func (g *groupDial) dialOne(m *Endpoint, o *GetOptions, left int) (*Conn, *DialError) {
	share := g.share(left)
	ctx, cancel := context.WithTimeout(g.ctx, share)
	defer cancel()
	c, err := m.pool.Get(ctx, *o)
	if err == nil {
		return c, nil
	}
	var dial *DialError
	if !errors.As(err, &dial) {
		dial = &DialError{Addr: m.addr, Err: err}
	}
	shortShare := share < minShare || g.hurried && share < MinEvidence
	switch {
	case dial.Kind == KindTimeout && shortShare:
		m.ReportDoubtful()
	case dial.Kind == KindCanceled, dial.Kind == KindNoDescriptors, dial.Kind == KindNoStream: // no evidence about the address
	default:
		m.ReportLost()
	}
	return nil, dial
}

// isOver reports whether the dial was canceled or has no time left (the context may expire
// slightly later).
func (g *groupDial) isOver() bool { return g.ctx.Err() != nil || !time.Now().Before(g.deadline) }

// joinErrors returns the last error with the causes of all. It copies, since the errors may
// be shared.
func joinErrors(last DialError, all []error) *DialError {
	if len(all) > 1 {
		last.Err = errors.Join(all...)
	}
	return &last
}

// share returns the time for one of the left addresses.
func (g *groupDial) share(left int) time.Duration {
	even := time.Until(g.deadline) / time.Duration(left)
	return max(even, min(minShare, g.total/4))
}
