package upstream

import (
	"context"
	"errors"
	"time"
)

// minShare is the least time one address gets before the next one is
// tried, but never more than a quarter of the whole: a name with
// hundreds of addresses must not leave each too little for one round
// trip. So at least four addresses are always tried, and twelve with the
// default timeout, however silent they are; those that refuse at once
// cost next to nothing.
const minShare = 250 * time.Millisecond

// groupDial is one dial, over all addresses.
type groupDial struct {
	ctx      context.Context // the whole dial's, ends at deadline
	deadline time.Time
	total    time.Duration // from its begin to deadline
}

// Get gives a pooled connection (see TryPooled) or dials: the address whose turn
// it is and, while they fail, every other. Only looking up and dialling use ctx;
// they end at the target's DialTimeout or with ctx, whichever is first. The
// error is always a *DialError; its Kind is not KindDNS as long as a response
// for the name was ever had.
func (g *Group) Get(ctx context.Context, o GetOptions) (*Conn, error) {
	if g.singlePool != nil {
		c, err := g.singlePool.Get(ctx, o)
		g.reportDialError(err)
		return c, err
	}
	if !o.ForceLookup {
		if o.Endpoint == nil {
			o.Endpoint = g.Choose(o.Avoid)
		}
		if c := g.TryPooled(&o); c != nil {
			return c, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, g.target.dialTimeout())
	defer cancel()
	at, _ := ctx.Deadline() // the client's own, when that is earlier
	d := &groupDial{ctx: ctx, deadline: at, total: time.Until(at)}
	if err := g.ensureResolved(ctx, &o, d.total); err != nil {
		failed := &DialError{Kind: classifyLookup(ctx, err), Addr: g.target.Address, Err: err}
		g.dnsErrors[failed.Kind].Add(1)
		g.reportDialError(failed)
		return nil, failed
	}
	return g.dialAny(d, &o)
}

// reportDialError passes on a failed connection, unless it was only given up.
func (g *Group) reportDialError(err error) {
	var dial *DialError
	if g.options.OnDialError != nil && errors.As(err, &dial) && dial.Kind != KindCanceled {
		g.options.OnDialError(dial)
	}
}

// dialAny tries every address in order, each with its share of the time left.
func (g *Group) dialAny(d *groupDial, o *GetOptions) (*Conn, error) {
	var failed []error
	order := g.picker.Load().dialOrder(o.Endpoint, o.Avoid, g.random)
	for i, m := range order {
		c, err := d.dialOne(m, o, len(order)-i)
		if err == nil {
			return c, nil
		}
		g.reportDialError(err)
		failed = append(failed, err.Err)
		if i == len(order)-1 || d.isOver() || err.Kind == KindNoDescriptors {
			return nil, joinErrors(*err, failed)
		}
	}
	panic("unreachable: a view has at least one member")
}

// dialOne connects to m in the share of time of one address of left. A failed
// handshake counts like a failed connect: each is verified, so no less is proven.
func (d *groupDial) dialOne(m *Endpoint, o *GetOptions, left int) (*Conn, *DialError) {
	share := d.share(left)
	ctx, cancel := context.WithTimeout(d.ctx, share)
	defer cancel()
	c, err := m.pool.Get(ctx, *o)
	if err == nil {
		return c, nil
	}
	var dial *DialError
	if !errors.As(err, &dial) {
		dial = &DialError{Addr: m.addr, Err: err}
	}
	switch shortShare := dial.Kind == KindTimeout && share < minShare; {
	case shortShare, dial.Kind == KindCanceled, dial.Kind == KindNoDescriptors: // says nothing about the address
	default:
		m.ReportFailure()
	}
	return nil, dial
}

// isOver: canceled, or no time left (the context may learn of it a little later).
func (d *groupDial) isOver() bool { return d.ctx.Err() != nil || !time.Now().Before(d.deadline) }

// joinErrors is the last error with the causes of all. What it is made of may be shared.
func joinErrors(last DialError, all []error) *DialError {
	if len(all) > 1 {
		last.Err = errors.Join(all...)
	}
	return &last
}

// share is the time for one address of left.
func (d *groupDial) share(left int) time.Duration {
	even := time.Until(d.deadline) / time.Duration(left)
	return max(even, min(minShare, d.total/4))
}
