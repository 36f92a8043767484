package policy

import "time"

// evidence counts how attempts ended over the last seconds and says when they
// condemn the upstream as a whole.
//
// The upstream is condemned when within the last second, or within the last
// five, at least 20 attempts ended and 90 % of them failed: the short window so
// that an outage is seen within about a second whatever went well before it, the
// long one for services of few requests. One URL that fails among healthy ones
// does not condemn it, even where clients hammer it: when four of five failures
// have the same key, another key that is answered acquits (see urls).
// Nor do failures that only add to what goes on as well as ever: while good
// answers come at half of their usual rate or more, the upstream is up, and a
// client who sends nothing but failing requests harms nobody else.
type evidence struct {
	slots    [evidenceSlots]evidenceSlot
	slot     int64   // number of the current slot
	meanGood float64 // good responses per slot, a mean that forgets within longWindow

	// Since the first failure after a pause of longWindow:
	failures       int64         // failed, all keys
	unanswered     int64         // of these, those that had no response in time
	topKey         uint32        // the key most failures have, if one has (Boyer and Moore's vote)
	votes          int64         // of that vote
	topKeyFailures int64         // failures with the suspect's key, since it is the suspect
	lastBad        time.Duration // the latest failure
	any            bool          // lastBad is one
}

type evidenceSlot struct{ good, bad int64 }

const (
	evidenceSlotTime = 100 * time.Millisecond
	evidenceSlots    = int64(longWindow / evidenceSlotTime)
	shortWindow      = time.Second
	longWindow       = 5 * time.Second

	evidenceVolume = 20  // attempts that condemn at least
	evidenceShare  = 0.9 // of them failed
	sameKeyShare   = 0.8 // of failures, that make one URL the suspect
)

// advance forgets what is older than the windows.
func (e *evidence) advance(now time.Duration) {
	slot := int64(max(now, 0) / evidenceSlotTime)
	for n := min(slot-e.slot, evidenceSlots); n > 0; n-- {
		e.meanGood += (float64(e.slots[(slot-n)%evidenceSlots].good) - e.meanGood) / float64(evidenceSlots)
		e.slots[(slot-n+1)%evidenceSlots] = evidenceSlot{}
	}
	e.slot = max(e.slot, slot)
	if e.any && now-e.lastBad >= longWindow {
		*e = evidence{slots: e.slots, slot: e.slot, meanGood: e.meanGood}
	}
}

// recentFailures says whether there were failures lately, so that the keys of
// what goes well matter.
func (e *evidence) recentFailures() bool { return e.any }

// good counts n attempts that went well, keys unknown.
func (e *evidence) good(now time.Duration, n int64) {
	e.advance(now)
	e.slots[e.slot%evidenceSlots].good += n
}

// bad counts an attempt that failed as end says.
func (e *evidence) bad(now time.Duration, end AttemptEnd) {
	key := end.Key
	e.advance(now)
	if end.Kind == TimedOut || end.Kind == Abandoned {
		e.unanswered++
	}
	e.slots[e.slot%evidenceSlots].bad++
	e.lastBad, e.any = max(now, e.lastBad), true
	e.failures++
	switch {
	case key == e.topKey:
		e.votes++
	case e.votes > 0:
		e.votes--
	default:
		e.topKey, e.votes, e.topKeyFailures = key, 1, 0
	}
	if key == e.topKey {
		e.topKeyFailures++
	}
}

// upstreamFails says whether the upstream as a whole is down, after bad.
func (e *evidence) upstreamFails() bool {
	var good, bad int64
	for i := range evidenceSlots {
		s := &e.slots[(e.slot-i+evidenceSlots)%evidenceSlots]
		good += s.good
		bad += s.bad
		if i+1 == int64(shortWindow/evidenceSlotTime) && mostlyFailed(good, bad) && !e.goodAsUsual(good, i+1) {
			return true
		}
	}
	return mostlyFailed(good, bad) && !e.goodAsUsual(good, evidenceSlots)
}

// goodAsUsual says whether good responses within as many slots are no fewer than half of
// what is usual. Where too few are usual in a short time to tell, it is left to the
// longer window.
func (e *evidence) goodAsUsual(good, slots int64) bool {
	expected := e.meanGood * float64(slots)
	if slots < evidenceSlots && expected >= 0.5 && expected < 6 {
		return true
	}
	return good >= 2 && 2*float64(good) >= expected
}

// mostlyUnanswered reports whether the failures are for the most part answers that
// did not come.
func (e *evidence) mostlyUnanswered() bool { return 2*e.unanswered > e.failures }

func mostlyFailed(good, bad int64) bool {
	return good+bad >= evidenceVolume && float64(bad) >= evidenceShare*float64(good+bad)
}

// oneKey says whether nearly all failures have the same key, the suspect.
func (e *evidence) oneKey() bool {
	return e.topKey != 0 && float64(e.topKeyFailures) >= sameKeyShare*float64(e.failures)
}
