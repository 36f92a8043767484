package upstream

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// unknownTTL is when an answer is asked for again that does not say how
	// long it holds (/etc/hosts). Envoy and HAProxy ask as often by default.
	unknownTTL = 5 * time.Second

	// An answer is asked for again within these bounds, whatever it says: not
	// every instant, and soon enough for names that are changed by hand.
	leastTTL, mostTTL = time.Second, time.Minute

	// afterFailure is when a failed lookup is repeated; until then the last
	// answer stays in use, as RFC 8767 advises, since most servers outlive an
	// outage of the DNS.
	afterFailure = 5 * time.Second

	// lookupBound ends a lookup that nobody waits for.
	lookupBound = 10 * time.Second
)

// source is one member of a list: a fixed address, or a name.
type source struct {
	target Target
	fixed  bool
	places []place // of the last answer
}

// place is where to connect.
type place struct {
	addr     string // "ip:port", or a socket's path
	priority uint16 // the lowest is used
	weight   uint32 // in [1, 1<<24)
}

// answer is what a name stands for.
type answer struct {
	places []place
	ttl    time.Duration // how long it holds; 0: for this once, or it does not say
	err    error
}

// newSource looks whether there is anything to look up.
func newSource(t Target) source {
	s := source{target: t}
	host, _, err := net.SplitHostPort(t.Address)
	_, isName := netip.ParseAddr(host)
	// Of a malformed address let the dialer say what is wrong with it.
	s.fixed = !t.SRV && (t.Network != "tcp" || t.Dial != nil && t.Resolve == nil || err != nil || isName == nil)
	if s.fixed {
		s.places = []place{{t.Address, 0, 1}}
	}
	return s
}

// known makes sure that there are members, as new as a dial wants them. The
// error is a lookup's, when nothing was ever found.
func (g *Group) known(ctx context.Context, o *GetOptions, total time.Duration) error {
	if g.fixed {
		return nil
	}
	anew := g.doubted.Load() || o.Anew
	g.mu.Lock()
	have := len(g.members) > 0
	fresh := have && time.Now().Before(g.holds)
	g.mu.Unlock()
	if fresh && !anew {
		return nil
	}
	g.resolving.Add(1)
	defer g.resolving.Add(-1)
	if have {
		// What was known last is likely to be right: a resolver that is slow takes no more of the time to dial.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, total/4)
		defer cancel()
	}
	if err := g.lookup(ctx); err != nil && g.view.Load() == nil {
		return err
	}
	return nil
}

// lookup asks for all names, or waits for one who does.
func (g *Group) lookup(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for begun := g.looked; g.looked == begun; {
		over := g.looking
		if over == nil {
			g.looking = make(chan struct{})
			return g.ask(ctx)
		}
		g.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
		}
		g.mu.Lock()
		if ctx.Err() != nil && g.looked == begun {
			return ctx.Err()
		}
	}
	return g.told
}

// ask does a lookup, all names at once, and puts what came of it in force. One
// whose beginner leaves says nothing to those who wait. Called with mu held,
// which it lets go meanwhile.
func (g *Group) ask(ctx context.Context) error {
	g.mu.Unlock()
	g.doubted.Store(false)
	answers := make([]answer, len(g.sources)) // their targets never change
	var all sync.WaitGroup
	for i := range g.sources {
		all.Go(func() { answers[i] = g.find(ctx, &g.sources[i]) })
	}
	all.Wait()
	g.mu.Lock()
	gone, err := g.take(answers)
	if !errors.Is(err, context.Canceled) {
		g.looked, g.told = g.looked+1, err
	}
	close(g.looking)
	g.looking = nil
	g.mu.Unlock()
	for _, m := range gone {
		m.pool.Close()
	}
	g.mu.Lock()
	return err
}

// take puts answers in force. A name that brought none keeps what it had.
// Called with mu held.
func (g *Group) take(answers []answer) (gone []*Member, err error) {
	hold, next := mostTTL, mostTTL
	for i, a := range answers {
		switch s := &g.sources[i]; {
		case a.err == nil:
			s.places = a.places
			hold = min(hold, a.ttl)
			next = min(next, max(cmp.Or(a.ttl, unknownTTL), leastTTL))
		default:
			err = errors.Join(err, a.err)
			hold, next = min(hold, afterFailure), min(next, afterFailure)
		}
	}
	if len(answers) == 1 {
		err = answers[0].err
	}
	g.holds = time.Now().Add(hold)
	g.setRefresh(next)
	return g.renew(), err
}

// setRefresh has the timer ask again. Called with mu held.
func (g *Group) setRefresh(after time.Duration) {
	switch {
	case g.closed:
	case g.refresh == nil:
		g.refresh = time.AfterFunc(after, g.again)
	default:
		g.refresh.Reset(after)
	}
}

// again is the timer's: it looks up anew what is in use. What is not is looked up by the next dial.
func (g *Group) again() {
	g.mu.Lock()
	g.leave(nil)
	used := len(g.leaving) > 0
	for _, m := range g.members {
		used = used || m.used()
	}
	g.mu.Unlock()
	if !used || g.background.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(g.background, lookupBound)
	defer cancel()
	_ = g.lookup(ctx) // the last answer stays, and the timer is set again
}

// lookUp asks what the name of s stands for.
func lookUp(ctx context.Context, s *source) answer {
	t := &s.target
	host, port, _ := net.SplitHostPort(t.Address)
	switch {
	case s.fixed:
		return answer{places: s.places, ttl: mostTTL}
	case t.Resolve != nil:
		ips, err := t.Resolve(ctx, host)
		return found(host, port, ips, err, 0)
	}
	a := &asker{server: t.DNS}
	if t.SRV {
		return a.service(ctx, t.Address)
	}
	return a.host(ctx, host, port)
}

// found makes an answer of a resolver's, in its order.
func found(host, port string, ips []netip.Addr, err error, ttl time.Duration) answer {
	if err == nil && len(ips) == 0 {
		err = &net.DNSError{Err: "no address", Name: host, IsNotFound: true}
	}
	a := answer{ttl: ttl, err: err}
	for _, ip := range ips {
		a.places = append(a.places, place{net.JoinHostPort(ip.Unmap().String(), port), 0, 1})
	}
	return a
}
