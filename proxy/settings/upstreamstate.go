package settings

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/printable"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// UpstreamState is what all routes to one upstream share. It survives a reload while any route
// still uses it.
type UpstreamState struct {
	key         upstreamKey
	Pool        *upstream.Group
	RetryBudget *budget.Budget
	BudgetQueue *admission.BudgetQueue // of retries that wait for a token of RetryBudget
	Admission   *admission.Queue

	DialFailures *admission.DialFailures

	BudgetKey uint64 // the same in all processes of a fleet
}

// Close closes the connections and ends the probes of the upstream.
func (u *UpstreamState) Close() {
	u.Admission.Close()
	u.Pool.Close()
}

// upstreamKey is what routes must have in common to share an upstream's pool, breaker, limit and
// budget, and what must not change for these to survive a reload.
type upstreamKey struct {
	target   string
	budget   budget.Config
	guard    breaker.Options
	queueMax int
	oldest   bool
	probe    admission.Probe
	dryRun   bool
	eject    upstream.Eject
	health   upstream.HealthCheck
}

// keyOf returns the key of the upstream of r.
func keyOf(r *Route) upstreamKey {
	return upstreamKey{
		target: r.Upstream.Key(), budget: r.Budget, guard: r.Guard, queueMax: r.QueueMax, oldest: r.QueueOldest,
		probe: r.Probe, dryRun: r.DryRun, eject: r.Eject, health: r.HealthCheck,
	}
}

// upstreamOf returns the upstream state that routes with equal settings for it share.
func (n *Settings) upstreamOf(r *Route, known map[upstreamKey]*UpstreamState) *UpstreamState {
	key := keyOf(r)
	if known[key] == nil {
		failures := admission.NewDialFailures(n.Log, r.Upstream.String())
		state := &UpstreamState{}
		pool := upstream.NewGroup(r.Upstream, upstream.Options{
			Start: n.process.Clock.Epoch(), ReadAhead: n.process.ReadAhead, Eject: r.Eject, OnDialError: failures.Record,
			HealthCheck: r.HealthCheck, OnHealth: n.logHealth(r.Upstream.String()),
			OnLost: func() { state.Admission.EndpointLost() }, // not before the first request
		})
		retryBudget := n.newBudget(r)
		*state = UpstreamState{
			key:         key,
			Pool:        pool,
			RetryBudget: retryBudget, BudgetKey: budgetKey(r),
			BudgetQueue: admission.NewBudgetQueue(retryBudget, r.QueueMax, n.process.Clock),
			Admission: admission.New(admission.Options{
				Guard: r.Guard, Pool: pool, Probe: r.Probe, Max: r.QueueMax, Oldest: r.QueueOldest,
				Clock: n.process.Clock, Draining: n.process.Draining, Failures: failures,
			}),
			DialFailures: failures,
		}
		known[key] = state
	}
	return known[key]
}

// maxErrorText bounds the text of an error in the log, in bytes.
const maxErrorText = 300

// logHealth returns a function that logs when an endpoint of the upstream becomes unhealthy or
// healthy.
func (n *Settings) logHealth(upstream string) func(addr string, err error) {
	return func(addr string, err error) {
		log := n.Log.With(zap.String("upstream", upstream), zap.String("address", addr))
		if err == nil {
			log.Info("the endpoint passes its health checks again")
			return
		}
		// Some of the error's text comes from the endpoint, such as the names in its certificate.
		log.Warn("the endpoint fails its health checks; requests go to other endpoints", zap.String("error", printable.Text(err.Error(), maxErrorText)))
	}
}

// budgetKey returns a hash that is the same in every process with a route with the same budget to
// the same upstream.
func budgetKey(r *Route) uint64 {
	h := sha256.Sum256(fmt.Appendf(nil, "budget\x00%s\x00%g %g %d", r.Upstream.String(), r.Budget.Ratio, r.Budget.MinPerSecond, r.Budget.Burst))
	return binary.BigEndian.Uint64(h[:])
}

// newBudget returns a budget for the route's upstream.
func (n *Settings) newBudget(r *Route) *budget.Budget {
	b := budget.New(r.Budget)
	if n.BudgetWanted != nil {
		b.Share(n.BudgetWanted)
	}
	return b
}
