package floodguard

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Requests are held only while too many end prematurely: time and responses earn more.
func TestPrematureEndsAreForgiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := DefaultLimits
		e := NewPrematureEnds(l)
		spend := func() (n int) {
			for e.pass() {
				e.Ended(l.Age, true)
				n++
			}
			return n
		}
		old := func() {
			e.running++
			e.Ended(seenLate*l.Age+1, true)
		}
		got := []int{spend()}
		old()
		time.Sleep(time.Second)
		got = append(got, spend())
		for range 3 * l.Responses {
			e.RespondedWhole()
		}
		got = append(got, spend())
		time.Sleep(time.Hour)
		for range l.Most {
			old()
		}
		got = append(got, spend())
		if want := []int{l.Most, l.perSecond, 3, l.Most}; !slices.Equal(got, want) {
			t.Errorf("%v are allowed, want %v", got, want)
		}
	})
}

// While a client is unknown, and once it has ended a request prematurely, a burst counts as if all of it
// ended so: what is beyond its allowance waits. Otherwise a burst of any size passes.
func TestABurstAfterAPrematureEndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := DefaultLimits
		e := NewPrematureEnds(l)
		burst := func() (passed int) {
			for range 4 * l.Most {
				if e.pass() {
					passed++
				}
			}
			return passed
		}
		unknown := burst()
		for e.running > 0 {
			e.Ended(time.Second, false)
		}
		e.RespondedWhole()
		first := burst()
		e.Ended(l.Age, true)
		second := burst()
		for e.running > 0 {
			e.Ended(time.Second, false)
		}
		third := burst()
		for e.running > 0 {
			e.Ended(time.Second, false)
		}
		time.Sleep(time.Second)
		if fourth := burst(); unknown != l.Most || first != 4*l.Most || second != 0 || third != l.Most-1 || fourth != 4*l.Most {
			t.Errorf("%d, %d, %d, %d, %d passed", unknown, first, second, third, fourth)
		}
	})
}
