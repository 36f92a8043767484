package upstream

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/sock"
)

const (
	// minShare is the least time one address gets before the next one is
	// tried, but never more than a quarter of the whole: a name with
	// hundreds of addresses must not leave each too little for one round
	// trip. So at least four addresses are always tried, and twelve with the
	// default timeout, however silent they are; those that refuse at once
	// cost next to nothing.
	minShare = 250 * time.Millisecond

	// Keep-alive probes find a peer that vanished after about a minute; they
	// also keep an idle connection known to the NATs on the way.
	probeIdle     = 15 * time.Second
	probeInterval = 15 * time.Second
	probeCount    = 3
)

// dialer sets no timeout, since every dial has a context with one. TCP_NODELAY
// is set by package net on every connection it makes.
var dialer = net.Dialer{
	FallbackDelay: -1,
	KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: probeIdle, Interval: probeInterval, Count: probeCount,
	},
}

// dialing is one dial, over all addresses.
type dialing struct {
	ctx      context.Context // the whole dial's, ends at deadline
	deadline time.Time
	total    time.Duration // from its begin to deadline
	avoid    string
	http1    bool // not HTTP/2, where there is a choice
}

// dial makes a new connection, counted as active, or gives a *DialError.
func (p *Pool) dial(ctx context.Context, avoid string, http1 bool) (*Conn, error) {
	p.dialing.Add(1)
	defer p.dialing.Add(-1)
	ctx, cancel := context.WithTimeout(ctx, p.target.dialTimeout())
	defer cancel()
	at, _ := ctx.Deadline() // the caller's own, when that is earlier
	c, err := p.dialAny(&dialing{ctx: ctx, deadline: at, total: time.Until(at), avoid: avoid, http1: http1})
	if err != nil {
		p.dialErrors[err.Kind].Add(1)
		return nil, err
	}
	p.dials.Add(1)
	return c, nil
}

// dialAny tries every address in order, each with its share of the time left.
func (p *Pool) dialAny(d *dialing) (*Conn, *DialError) {
	addrs, err := p.resolve(d)
	if err != nil {
		return nil, err
	}
	var failed []error
	for i, addr := range addrs {
		c, err := p.dialOne(d, addr, len(addrs)-i)
		if err == nil {
			return c, nil
		}
		failed = append(failed, err.Err)
		if i == len(addrs)-1 || d.over() || err.Kind == KindNoDescriptors {
			return nil, join(err, failed)
		}
	}
	panic("unreachable: resolve gives at least one address")
}

// over: canceled, or no time left (the context may learn of it a little later).
func (d *dialing) over() bool { return d.ctx.Err() != nil || !time.Now().Before(d.deadline) }

func join(last *DialError, all []error) *DialError {
	if len(all) > 1 {
		last.Err = errors.Join(all...)
	}
	return last
}

// dialOne connects to addr and, with TLS, shakes hands, in the share of time
// of one address of left. A failed handshake goes on to the next address like
// a failed connect: each is verified, so no less is proven.
func (p *Pool) dialOne(d *dialing, addr string, left int) (*Conn, *DialError) {
	ctx, cancel := context.WithTimeout(d.ctx, d.share(left))
	defer cancel()
	wire, err := p.connect(ctx, addr)
	if err != nil {
		return nil, &DialError{Kind: classify(err), Addr: addr, Err: bare(err)}
	}
	if p.target.TLS == nil {
		return p.ready(ctx, addr, wire, nil)
	}
	c, guard, err := p.handshake(ctx, wire, d.http1)
	if err != nil {
		return nil, &DialError{Kind: classifyHandshake(err), Addr: addr, Err: err}
	}
	return p.ready(ctx, addr, c, guard)
}

// ready makes a Conn of a connection: itself, or the first HTTP/2 stream on it.
func (p *Pool) ready(ctx context.Context, addr string, c net.Conn, below *tlsWire) (*Conn, *DialError) {
	if p.streams == nil {
		return p.newConn(addr, c, below), nil
	}
	two, err := p.streams.speaks(c)
	if err != nil {
		_ = c.Close()
		return nil, &DialError{Kind: KindTLS, Addr: addr, Err: err}
	}
	if !two {
		return p.newConn(addr, c, below), nil
	}
	conn, err := p.streams.begin(ctx, addr, c)
	if err != nil {
		return nil, &DialError{Kind: classify(err), Addr: addr, Err: err}
	}
	return conn, nil
}

// share is the time for one address of left.
func (d *dialing) share(left int) time.Duration {
	even := time.Until(d.deadline) / time.Duration(left)
	return max(even, min(minShare, d.total/4))
}

func (p *Pool) connect(ctx context.Context, addr string) (net.Conn, error) {
	dial := dialer.DialContext
	if p.target.Dial != nil {
		dial = p.target.Dial
	}
	c, err := dial(ctx, p.target.Network, addr)
	if err != nil {
		return nil, err
	}
	return sock.Wrap(c), nil
}

// bare takes off package net's own "dial tcp 10.0.0.7:80: ", since DialError
// says it as well.
func bare(err error) error {
	if op, ok := err.(*net.OpError); ok && op.Op == "dial" {
		return op.Err
	}
	return err
}

// resolve gives the addresses to try, at least one, the avoided one last.
// Names are looked up each time: package net joins lookups of the same name
// that run at once, and a dial is rare next to a request.
func (p *Pool) resolve(d *dialing) ([]string, *DialError) {
	host, port, literal := p.target.split()
	if literal {
		p.several.Store(false)
		return []string{p.target.Address}, nil
	}
	ips, err := p.lookup(d.ctx, host)
	if err == nil && len(ips) == 0 {
		err = &net.DNSError{Err: "no address", Name: host, IsNotFound: true}
	}
	if err != nil {
		return nil, &DialError{Kind: classifyLookup(d.ctx, err), Addr: p.target.Address, Err: err}
	}
	p.several.Store(len(ips) > 1)
	return ordered(ips, port, d.avoid), nil
}

func (p *Pool) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if p.target.Resolve != nil {
		return p.target.Resolve(ctx, host)
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// ordered keeps the resolver's order, but puts the avoided address last.
func ordered(ips []netip.Addr, port string, avoid string) []string {
	addrs := make([]string, 0, len(ips))
	for _, ip := range ips {
		a := net.JoinHostPort(ip.Unmap().String(), port)
		if !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	if i := slices.Index(addrs, avoid); i >= 0 {
		addrs = append(slices.Delete(addrs, i, i+1), avoid)
	}
	return addrs
}

// split takes the address apart. literal: there is nothing to resolve.
func (t *Target) split() (host, port string, literal bool) {
	if t.Network != "tcp" || t.Dial != nil && t.Resolve == nil {
		return "", "", true
	}
	host, port, err := net.SplitHostPort(t.Address)
	if err != nil {
		return "", "", true // let the dialer say what is wrong with it
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return "", "", true
	}
	return host, port, false
}
