package policy

import "time"

// evidence counts how attempts ended over the last seconds and says when they
// condemn the upstream as a whole.
//
// The upstream is condemned when within the last second, or within the last
// five, at least 20 attempts ended and 90 % of them failed: the short window so
// that an outage is seen within about a second whatever went well before it, the
// long one for services of few requests. One URL that fails among healthy ones
// does not condemn it, even where callers hammer it: when four of five failures
// have the same key, another key that is answered acquits (see urls).
// Nor do failures that only add to what goes on as well as ever: while good
// answers come at half of their usual rate or more, the upstream is up, and a
// caller who sends nothing but failing requests harms nobody else.
type evidence struct {
	slots [evidenceSlots]evidenceSlot
	slot  int64   // number of the current slot
	usual float64 // good answers per slot, a mean that forgets within longWindow

	// Since the first failure after a pause of longWindow:
	failures int64         // failed, all keys
	silent   int64         // of these, those that had no answer in time
	suspect  uint32        // the key most failures have, if one has (Boyer and Moore's vote)
	votes    int64         // of that vote
	same     int64         // failures with the suspect's key, since it is the suspect
	lastBad  time.Duration // the latest failure
	any      bool          // lastBad is one
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

// turn forgets what is older than the windows.
func (e *evidence) turn(now time.Duration) {
	slot := int64(max(now, 0) / evidenceSlotTime)
	for n := min(slot-e.slot, evidenceSlots); n > 0; n-- {
		e.usual += (float64(e.slots[(slot-n)%evidenceSlots].good) - e.usual) / float64(evidenceSlots)
		e.slots[(slot-n+1)%evidenceSlots] = evidenceSlot{}
	}
	e.slot = max(e.slot, slot)
	if e.any && now-e.lastBad >= longWindow {
		*e = evidence{slots: e.slots, slot: e.slot, usual: e.usual}
	}
}

// suspicious says whether there were failures lately, so that the keys of
// what goes well matter.
func (e *evidence) suspicious() bool { return e.any }

// good counts n attempts that went well, keys unknown.
func (e *evidence) good(now time.Duration, n int64) {
	e.turn(now)
	e.slots[e.slot%evidenceSlots].good += n
}

// bad counts an attempt that failed as end says.
func (e *evidence) bad(now time.Duration, end Ending) {
	key := end.Key
	e.turn(now)
	if end.Kind == TimedOut || end.Kind == Abandoned {
		e.silent++
	}
	e.slots[e.slot%evidenceSlots].bad++
	e.lastBad, e.any = max(now, e.lastBad), true
	e.failures++
	switch {
	case key == e.suspect:
		e.votes++
	case e.votes > 0:
		e.votes--
	default:
		e.suspect, e.votes, e.same = key, 1, 0
	}
	if key == e.suspect {
		e.same++
	}
}

// condemns says whether the upstream as a whole is down, after bad.
func (e *evidence) condemns() bool {
	var good, bad int64
	for i := range evidenceSlots {
		s := &e.slots[(e.slot-i+evidenceSlots)%evidenceSlots]
		good += s.good
		bad += s.bad
		if i+1 == int64(shortWindow/evidenceSlotTime) && condemned(good, bad) && !e.asEver(good, i+1) {
			return true
		}
	}
	return condemned(good, bad) && !e.asEver(good, evidenceSlots)
}

// asEver says whether good answers within as many slots are no fewer than half of
// what is usual. Where too few are usual in a short time to tell, it is left to the
// longer window.
func (e *evidence) asEver(good, slots int64) bool {
	expected := e.usual * float64(slots)
	if slots < evidenceSlots && expected >= 0.5 && expected < 6 {
		return true
	}
	return good >= 2 && 2*float64(good) >= expected
}

// mostlySilent reports whether the failures are for the most part answers that
// did not come.
func (e *evidence) mostlySilent() bool { return 2*e.silent > e.failures }

func condemned(good, bad int64) bool {
	return good+bad >= evidenceVolume && float64(bad) >= evidenceShare*float64(good+bad)
}

// oneKey says whether nearly all failures have the same key, the suspect.
func (e *evidence) oneKey() bool {
	return e.suspect != 0 && float64(e.same) >= sameKeyShare*float64(e.failures)
}
