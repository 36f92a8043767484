package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/ctl/plan"
	"github.com/retryproxy/retryproxy/ctl/sim"
	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/budget"
)

// Wish is what a user requests by flags. A size of 0 is derived from the number of clients.
type Wish struct {
	Seed    uint64
	Through []string // names of Ways
	Own     []Own    // additional ways with the user's settings
	// Backoffs are lists as in plan.Wish: the waits of a proxy between its own retries.
	// Each is combined with every way that retries; empty means the default.
	Backoffs []string
	// ClientBackoffs are lists of what clients do after a failure: Naive, Once, or a
	// strategy as in Backoffs, which may end with fromPause. Each is combined with every
	// way.
	ClientBackoffs []string

	Outage      string // one of Outages
	Peace, Down time.Duration
	Length      time.Duration // in total
	Clients     int
	Every       time.Duration
	Patience    time.Duration
	Base        time.Duration
	Free        int
	AcceptQueue int
	Proxies     int
}

// slower is the factor of the response times during the outage slow.
const slower = 10

// Own is a proxy with the user's settings.
type Own struct {
	Label string
	Proxy sim.Proxy
}

// FromRoute returns the simulation's settings for a route.
func FromRoute(r *config.Route) (sim.Proxy, error) {
	p := sim.DefaultProxy()
	var err error
	if p.Policy, err = r.Policy(); err != nil {
		return p, err
	}
	p.Budget = unlimited
	if b, has := r.Budget(); has {
		p.Budget = b
	}
	p.Guard = r.Guard()
	p.AttemptTimeout, p.QueueMax, p.BreakerQueueTimeout = r.AttemptTimeout.Value(), r.QueueMax, r.QueueTimeout
	if r.Breaker == "fail-fast" {
		p.BreakerQueueTimeout = 0
	}
	return p, nil
}

// somaxconn is the accept queue of a server per thousand clients: net.core.somaxconn since Linux 5.4.
const somaxconn = 4096

// Default returns the storm of docs/explanation/storm.md, but with the accept queue of a usual server.
func Default() Wish {
	c := sim.Default()
	return Wish{
		Seed: 1, Through: []string{"direct", "haproxy", "retryproxy"}, ClientBackoffs: []string{Naive},
		Outage: "stop", Peace: c.Faults[0].At, Down: c.Faults[0].For, Length: c.Length,
		Clients: c.Clients.N, Every: c.Clients.Every, Patience: c.Clients.Patience, Base: c.Server.Base,
	}
}

// What clients do after a failure, in addition to the strategies.
const (
	Naive = "naive" // try again after 100 ms, until there is a good response
	Once  = "once"  // continue as after a good response
)

// fromPause is the suffix of a client strategy whose first wait grows from the pause before
// the request; see sim.Clients.
const fromPause = ":from=pause"

// unlimited is a budget that is never exhausted.
var unlimited = budget.Config{Ratio: 10, MinPerSecond: 10_000, Burst: 1_000_000}

// Way is what clients send through.
type Way struct {
	Name    string
	retries bool // it has a backoff of its own
	change  func(*sim.Config)
}

// Ways returns all ways.
func Ways() []Way {
	withoutGuard := func(c *sim.Config) {
		c.Via = sim.ViaProxy
		c.Proxy.Guard = breaker.Options{NoBreaker: true, ConcurrencyLimit: breaker.ConcurrencyLimitOff}
	}
	return []Way{
		{"direct", false, func(c *sim.Config) { c.Via = sim.ViaNothing }},
		{"retries", true, func(c *sim.Config) { // a proxy that retries and does nothing else
			withoutGuard(c)
			c.Proxy.Budget = unlimited
		}},
		{"budget", true, withoutGuard},                                   // the same with retryproxy's retry budget
		{"haproxy", false, func(c *sim.Config) { c.Via = sim.ViaSlots }}, // a fixed number of connections and a queue before them
		{"retryproxy", true, func(c *sim.Config) { c.Via = sim.ViaProxy }},
	}
}

// Outages returns the names of all outages.
func Outages() []string { return []string{"stop", "kill", "503", "slow", "none"} }

// Limits of a simulation.
const (
	maxRuns    = 12
	maxClients = 1_000_000
	maxLength  = 24 * time.Hour
)

// Run is one storm to simulate.
type Run struct {
	Label  string // unique
	Config sim.Config
}

// Runs returns the storms that w requests: every way combined with every behaviour of
// clients. The error names all problems.
func (w *Wish) Runs() ([]Run, error) {
	if err := w.validate(); err != nil {
		return nil, err
	}
	ways, err1 := w.ways()
	clientBehaviours, err2 := w.clientBehaviours()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if n := len(ways) * len(clientBehaviours); n > maxRuns {
		return nil, fmt.Errorf("%d storms to play, expected at most %d", n, maxRuns)
	}
	var runs []Run
	for _, way := range ways {
		for _, behaviour := range clientBehaviours {
			c := w.config()
			behaviour.change(&c)
			way.change(&c)
			label := way.Name
			if len(clientBehaviours) > 1 {
				label += ", clients " + behaviour.Name
			}
			if slices.ContainsFunc(runs, func(r Run) bool { return r.Label == label }) {
				return nil, fmt.Errorf("%s is given twice", label)
			}
			runs = append(runs, Run{label, c})
		}
	}
	return runs, nil
}

// config returns the storm without a way.
func (w *Wish) config() sim.Config {
	c := sim.Default()
	c.Seed, c.Length, c.Server.AcceptQueue = w.Seed, w.Length, somaxconn
	c.Scale(w.Clients)
	c.Clients.Every, c.Clients.Patience, c.Server.Base = w.Every, w.Patience, w.Base
	c.Server.Free, c.Slots = cmp.Or(w.Free, c.Server.Free), cmp.Or(w.Free, c.Slots)
	c.Server.AcceptQueue = cmp.Or(w.AcceptQueue, c.Server.AcceptQueue)
	c.Proxies = cmp.Or(w.Proxies, c.Proxies)
	c.SlotTimeout = c.SlotFor + w.Base
	kind := map[string]sim.FaultKind{"stop": sim.Stop, "kill": sim.Kill, "503": sim.Reject, "slow": sim.Slower}
	c.Faults = nil
	if w.Outage != "none" {
		c.Faults = []sim.Fault{{Kind: kind[w.Outage], At: w.Peace, For: w.Down, Times: slower}}
	}
	return c
}

// ways returns the requested ways, each that retries once per backoff.
func (w *Wish) ways() ([]Way, error) {
	chosen, err := w.chosen()
	if err != nil || len(w.Backoffs) == 0 {
		return chosen, err
	}
	backoffs, err := plan.Parse(plan.Wish{Backoffs: w.Backoffs})
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(chosen, func(way Way) bool { return way.retries }) {
		return nil, errors.New("--backoff has no effect, because no way of --through retries; --client-backoff sets what clients do")
	}
	var ways []Way
	for _, way := range chosen {
		if !way.retries {
			ways = append(ways, way)
			continue
		}
		for _, b := range backoffs {
			ways = append(ways, Way{Name: way.Name + ", " + b.Label, change: func(c *sim.Config) {
				way.change(c)
				c.Proxy.Policy.Backoff = b.Backoff
			}})
		}
	}
	return ways, nil
}

// chosen returns the ways of Through and the user's own.
func (w *Wish) chosen() ([]Way, error) {
	var chosen []Way
	all := Ways()
	for _, name := range w.Through {
		i := slices.IndexFunc(all, func(way Way) bool { return way.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("--through: %q is not one of %s", name, strings.Join(names(all), ", "))
		}
		chosen = append(chosen, all[i])
	}
	for _, own := range w.Own {
		chosen = append(chosen, Way{Name: own.Label, retries: true, change: func(c *sim.Config) {
			c.Via, c.Proxy = sim.ViaProxy, own.Proxy
		}})
	}
	return chosen, nil
}

func names(ways []Way) []string {
	list := make([]string, len(ways))
	for i := range ways {
		list[i] = ways[i].Name
	}
	return list
}

// clientBehaviours returns the behaviours of clients, in the form of ways.
func (w *Wish) clientBehaviours() ([]Way, error) {
	var clientBehaviours []Way
	var errs []error
	for name := range strings.SplitSeq(strings.Join(w.ClientBackoffs, ","), ",") {
		m := Way{Name: name}
		switch name {
		case Naive:
			m.change = func(*sim.Config) {}
		case Once:
			m.change = func(c *sim.Config) { c.Clients.RetryAfter = 0 }
		default:
			var err error
			if m, err = parseClientBackoff(name); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		clientBehaviours = append(clientBehaviours, m)
	}
	return clientBehaviours, errors.Join(errs...)
}

// parseClientBackoff returns clients that wait by a strategy.
func parseClientBackoff(name string) (Way, error) {
	text, grows := strings.CutSuffix(name, fromPause)
	b, err := plan.Parse(plan.Wish{Backoffs: []string{text}})
	if err != nil {
		return Way{}, fmt.Errorf("--client-backoff: expected %s, %s or a strategy: %w", Naive, Once, err)
	}
	label := b[0].Label
	if grows {
		switch b[0].Backoff.(type) {
		case backoff.Normal, backoff.Decorrelated:
		default:
			return Way{}, fmt.Errorf("--client-backoff: %s: only normal and decorrelated grow from the wait before", name)
		}
		label += " from the pause"
	}
	return Way{Name: label, change: func(c *sim.Config) {
		c.Clients.Backoff, c.Clients.FromPause = b[0].Backoff, grows
	}}, nil
}

// validate returns an error that names everything out of range.
func (w *Wish) validate() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	need(slices.Contains(Outages(), w.Outage), "--outage: %q is not one of %s", w.Outage, strings.Join(Outages(), ", "))
	need(w.Clients >= 1 && w.Clients <= maxClients, "--clients: expected 1 to %d", maxClients)
	need(w.Proxies >= 0 && w.Proxies <= w.Clients, "--proxies: expected 1 to as many as clients")
	need(w.Free >= 0, "--free: expected a number above 0")
	need(w.AcceptQueue >= 0, "--accept-queue: expected a number above 0")
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"every", w.Every}, {"patience", w.Patience}, {"base", w.Base}} {
		need(d.value >= time.Millisecond && d.value <= maxLength, "--%s: expected 1ms to %v", d.name, maxLength)
	}
	need(w.Peace >= time.Second && w.Down >= time.Second, "--peace and --down: expected 1s or more")
	need(w.Length <= maxLength, "--length: expected at most %v", maxLength)
	need(w.Length >= w.Peace+w.Down+time.Second, "--length=%v: expected a second more than --peace and --down together", w.Length)
	return errors.Join(errs...)
}
