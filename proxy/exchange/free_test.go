package exchange

import (
	"slices"
	"testing"

	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// A failure that is seen while the upstream is known to be down uses up no retry. If it is not certain what the
// upstream did, that holds once.
func TestALostAttemptIsFreeOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		queues, down bool
		certain      []bool // of each attempt
		free         []bool
	}{
		"certain":         {true, true, []bool{true, true, true}, []bool{true, true, true}},
		"lost":            {true, true, []bool{false, false, false}, []bool{true, false, false}},
		"certain, lost":   {true, true, []bool{true, false, true, false}, []bool{true, true, true, false}},
		"not known":       {true, false, []bool{true, false}, []bool{false, false}},
		"it cannot queue": {false, true, []bool{true, false}, []bool{false, false}},
	} {
		s := sender{r: &request.Request{Dest: &settings.RouteState{Terms: &admission.Terms{Queues: tc.queues}}}}
		var free []bool
		for _, certain := range tc.certain {
			s.settled(tc.down, certain)
			free = append(free, s.retriesFree)
		}
		if !slices.Equal(free, tc.free) {
			t.Errorf("%s: %v, want %v", name, free, tc.free)
		}
	}
}
