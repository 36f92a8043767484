package admission

import (
	"slices"
	"testing"

	"github.com/retryproxy/retryproxy/policy/breaker"
)

// A failure that is seen while the upstream is known to be down uses up no retry. If it is not certain what the
// upstream did, that holds once.
func TestALostAttemptIsFreeOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		queues  bool
		signal  breaker.Signal
		certain []bool // of each attempt
		free    []bool
	}{
		"certain":         {true, breaker.SignalDown, []bool{true, true, true}, []bool{true, true, true}},
		"lost":            {true, breaker.SignalDown, []bool{false, false, false}, []bool{true, false, false}},
		"certain, lost":   {true, breaker.SignalDown, []bool{true, false, true, false}, []bool{true, true, true, false}},
		"not known":       {true, breaker.SignalWake, []bool{true, false}, []bool{false, false}},
		"it cannot queue": {false, breaker.SignalDown, []bool{true, false}, []bool{false, false}},
	} {
		h := newHouse(t)
		h.terms.Queues, h.terms.RateLimits = tc.queues, nil
		ad := h.admitter(WaitedOut)
		for range 2 { // requests
			ad.Begin()
			var free []bool
			for _, certain := range tc.certain {
				var ticket Ticket
				if why := ad.Admit(&ticket, h.clock.Now(), &h.terms, Ask{Began: h.clock.Now()}); why != nil {
					t.Fatalf("%s: %+v", name, why)
				}
				if ad.RetryIsFree() {
					t.Errorf("%s: free before the attempt failed", name)
				}
				ticket.Return(h.clock.Now())
				ticket.found(tc.signal, certain)
				free = append(free, ad.RetryIsFree())
			}
			if !slices.Equal(free, tc.free) {
				t.Errorf("%s: %v, want %v", name, free, tc.free)
			}
		}
	}
}

// If an attempt found the upstream down, a hedge that is settled later does not change that.
func TestAHedgeDoesNotForgetThatTheUpstreamIsDown(t *testing.T) {
	h := newHouse(t)
	ad := h.admitter(WaitedOut)
	first, hedge := Ticket{terms: &h.terms, of: ad}, Ticket{terms: &h.terms, of: ad}
	first.found(breaker.SignalDown, false)
	hedge.found(0, true)
	if !ad.RetryIsFree() {
		t.Error("the retry is not free")
	}
}
