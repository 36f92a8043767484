package breaker

import "time"

// evidence counts how attempts ended over the last seconds and decides when the upstream as
// a whole fails.
//
// It fails if within the last second, or the last five, at least 20 attempts ended and 90 %
// of them failed. The short window detects an outage within about a second whatever
// preceded it. The long one is for services with few requests. One failing URL among
// healthy ones is not enough, however often clients request it. If four of five failures
// have the same key, a good response with another key keeps the breaker closed (see urls).
//
// Failures on top of the usual traffic are not enough either. While good responses arrive
// at half of their usual rate or more, the upstream is up. So a client that sends nothing
// but failing requests does not affect others.
type evidence struct {
	slots    [evidenceSlots]evidenceSlot
	slot     int64   // number of the current slot
	meanGood float64 // good responses per slot, a mean that decays over longWindow

	// Since the first failure after a pause of longWindow:
	failures       int64         // failures of all keys
	unanswered     int64         // those without a response in time
	topKey         uint32        // the key that most failures have, if there is one (Boyer-Moore majority vote)
	votes          int64         // the counter of that vote
	topKeyFailures int64         // failures with topKey, since it is topKey
	lastBad        time.Duration // the latest failure
	any            bool          // lastBad is set
}

type evidenceSlot struct{ good, bad int64 }

const (
	evidenceSlotTime = 100 * time.Millisecond
	evidenceSlots    = int64(longWindow / evidenceSlotTime)
	shortWindow      = time.Second
	longWindow       = 5 * time.Second

	evidenceVolume = 20  // the minimum number of attempts
	evidenceShare  = 0.9 // the share of failed attempts
	sameKeyShare   = 0.8 // the share of failures with the same key that points to one URL
)

// advance drops what is older than the windows.
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

// recentFailures reports whether there were recent failures, so that the keys of good
// responses matter.
func (e *evidence) recentFailures() bool { return e.any }

// good counts n good responses with unknown keys.
func (e *evidence) good(now time.Duration, n int64) {
	e.advance(now)
	e.slots[e.slot%evidenceSlots].good += n
}

// bad counts a failed attempt.
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

// upstreamFails reports whether the upstream as a whole fails, after bad.
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

// goodAsUsual reports whether there were at least two good responses within slots, and no
// fewer than half of the usual number. If too few are usual in a short window to decide, it
// returns true and leaves the decision to the longer window.
func (e *evidence) goodAsUsual(good, slots int64) bool {
	expected := e.meanGood * float64(slots)
	if slots < evidenceSlots && expected >= 0.5 && expected < 6 {
		return true
	}
	return good >= 2 && 2*float64(good) >= expected
}

// mostlyUnanswered reports whether most failures are missing responses.
func (e *evidence) mostlyUnanswered() bool { return 2*e.unanswered > e.failures }

func mostlyFailed(good, bad int64) bool {
	return good+bad >= evidenceVolume && float64(bad) >= evidenceShare*float64(good+bad)
}

// oneKey reports whether nearly all failures have the key topKey.
func (e *evidence) oneKey() bool {
	return e.topKey != 0 && float64(e.topKeyFailures) >= sameKeyShare*float64(e.failures)
}
