package permit

import (
	"slices"
	"testing"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// A failure that is seen while the upstream is known to be down uses up no retry. If it is not certain what the
// upstream did, that holds once.
func TestALostAttemptIsFreeOnce(t *testing.T) {
	const down = breaker.SignalDown | breaker.SignalEvent
	for name, tc := range map[string]struct {
		mode    settings.BreakerMode
		signal  breaker.Signal
		certain []bool // of each attempt
		free    []bool
	}{
		"certain":         {settings.BreakerQueue, down, []bool{true, true, true}, []bool{true, true, true}},
		"lost":            {settings.BreakerQueue, down, []bool{false, false, false}, []bool{true, false, false}},
		"certain, lost":   {settings.BreakerQueue, down, []bool{true, false, true, false}, []bool{true, true, true, false}},
		"not known":       {settings.BreakerQueue, breaker.SignalEvent, []bool{true, false}, []bool{false, false}},
		"it cannot queue": {settings.BreakerFailFast, down, []bool{true, false}, []bool{false, false}},
	} {
		route := settings.RouteState{Route: &settings.Route{Breaker: tc.mode}}
		ad := Admitter{r: &request.Request{Dest: &route}}
		var free []bool
		for _, certain := range tc.certain {
			free = append(free, ad.isFree(tc.signal, certain))
		}
		if !slices.Equal(free, tc.free) {
			t.Errorf("%s: %v, want %v", name, free, tc.free)
		}
	}
}
