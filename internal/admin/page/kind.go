package page

import "github.com/retryproxy/retryproxy/policy"

// kind is what an outcome means to the client.
type kind uint8

const (
	firstTry  kind = iota // answered without a retry
	recovered             // answered, thanks to a retry
	failed                // the upstream's failure reached the client, or our own word did
	clientEnd             // the client left, or its request was not one
	numKinds
)

// kinds of all outcomes; those not named here are failures.
var kinds = func() (all [policy.NumOutcomes]kind) {
	for i := range all {
		all[i] = failed
	}
	all[policy.OutcomeSuccess], all[policy.OutcomeUpgraded] = firstTry, firstTry
	all[policy.OutcomeRecovered] = recovered
	for _, o := range []policy.Outcome{policy.OutcomeClientGone, policy.OutcomeRequestBroken, policy.OutcomeRequestTimeout, policy.OutcomeRefused} {
		all[o] = clientEnd
	}
	return all
}()

// kindOf is that of an outcome; one outside the set is a failure.
func kindOf(o policy.Outcome) kind {
	if int(o) >= len(kinds) {
		return failed
	}
	return kinds[o]
}
