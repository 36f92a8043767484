package page

import (
	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/policy"
)

// kind is the meaning of an outcome for the client.
type kind uint8

const (
	firstAttempt kind = iota // a response without a retry
	recovered                // a good response after a retry
	failed                   // the client got the upstream's failure, or an error of ours
	clientEnd                // the client left, or its request was refused
	numKinds
)

// kinds has the kind of every outcome; those not listed here are failures.
var kinds = func() (all [policy.NumOutcomes]kind) {
	for i := range all {
		all[i] = failed
	}
	all[policy.OutcomeSuccess], all[policy.OutcomeUpgraded] = firstAttempt, firstAttempt
	all[policy.OutcomeRecovered] = recovered
	for _, o := range []policy.Outcome{policy.OutcomeClientGone, policy.OutcomeRequestBroken, policy.OutcomeRequestTimeout, policy.OutcomeRefused} {
		all[o] = clientEnd
	}
	return all
}()

// kindOf returns the kind of an outcome; one outside the set is a failure.
func kindOf(o policy.Outcome) kind {
	if int(o) >= len(kinds) {
		return failed
	}
	return kinds[o]
}

func (k kind) String() string {
	return [...]string{"first_attempt", "recovered", "failed", "client_end"}[k]
}

// byKind returns how many requests had outcomes of each kind.
func byKind(c *metrics.Counts) (n [numKinds]uint32) {
	for o, times := range c.Outcomes {
		n[kinds[o]] += times
	}
	return n
}
