package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/status"
)

// BreakerOn is which failures are evidence for the circuit breaker: auto, or a part of the syntax
// of RETRY_ON.
type BreakerOn struct {
	list policy.RetryOn
	auto bool
}

// breakerOnWords are the words of RETRY_ON that a breaker understands. The others are about one
// response.
var breakerOnWords = []string{"5xx", "gateway-error", "connect-failure", "reset", "attempt-timeout"}

func parseBreakerOn(s string) (BreakerOn, error) {
	if strings.EqualFold(s, autoWord) {
		return BreakerOn{auto: true}, nil
	}
	for item := range strings.SplitSeq(s, ",") {
		item = strings.TrimSpace(item)
		first, _, _ := strings.Cut(strings.TrimPrefix(item, "!"), "-")
		if status.ParseCode(first) < 0 && !slices.Contains(breakerOnWords, item) {
			return BreakerOn{}, fmt.Errorf("%q is not one of these failures", item)
		}
	}
	on, err := policy.ParseRetryOn(s)
	if err != nil {
		return BreakerOn{}, err
	}
	for code := status.MinCode; code < 400; code++ {
		if on.Code(code) {
			return BreakerOn{}, fmt.Errorf("the status %d is not a failure; failures begin at 400", code)
		}
	}
	return BreakerOn{list: on}, nil
}

// String is the inverse of parseBreakerOn.
func (b BreakerOn) String() string {
	if b.auto {
		return autoWord
	}
	return b.list.String()
}

// failures returns the failures for a breaker.Guard. A list that names no failure without a
// response has all of them: what cannot be reached is down, whatever its statuses mean.
func (b BreakerOn) failures() breaker.Failures {
	if b.auto {
		return breaker.Failures{}
	}
	var statuses []int
	for code := 400; code <= status.MaxCode; code++ {
		if b.list.Code(code) {
			statuses = append(statuses, code)
		}
	}
	var named, all []breaker.EndKind
	for _, without := range []struct {
		cause policy.Cause
		kinds []breaker.EndKind
	}{
		{policy.CauseDial, []breaker.EndKind{breaker.Refused, breaker.DialFailed, breaker.Dropped}},
		{policy.CauseReset, []breaker.EndKind{breaker.Reset}},
		{policy.CauseAttemptTimeout, []breaker.EndKind{breaker.TimedOut, breaker.Abandoned}},
	} {
		all = append(all, without.kinds...)
		if b.list.Cause(without.cause) {
			named = append(named, without.kinds...)
		}
	}
	if len(named) == 0 {
		named = all
	}
	return breaker.NewFailures(named, statuses...)
}

// BreakerAfter is how many failures in a row open the circuit breaker; 0 is auto.
type BreakerAfter int

const maxBreakerAfter = 1_000_000

func parseBreakerAfter(s string) (BreakerAfter, error) {
	if strings.EqualFold(s, autoWord) {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxBreakerAfter {
		return 0, errForm
	}
	return BreakerAfter(n), nil
}

// String is the inverse of parseBreakerAfter.
func (b BreakerAfter) String() string {
	if b == 0 {
		return autoWord
	}
	return strconv.Itoa(int(b))
}
