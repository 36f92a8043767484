package backoff

import (
	"fmt"
	"time"
)

// Slots is randomised truncated binary exponential backoff: a wait of whole slot times, whose number
// is 2^k - 1 for a random k.
//
//	slot = 1 at first; at each failure
//	  if slot >= Ceiling and not Stay:  wait = 0 and slot = 1 again
//	  else  wait = min(Slot * (2^k - 1), Max), k uniform in 0..slot, and slot + 1 up to Ceiling
//
// Of the k that reach Max only the smallest is drawn, so that waits are random at the cap too.
// Slot is in nanoseconds. The slot number depends only on the retry number, so Wait needs no state.
// With the defaults the longest wait is 5.11 s, with Stay 10.23 s, and Max is not reached.
//
// Source: the truncated binary exponential backoff of Ethernet (IEEE 802.3 section 4.2.3.2.5), here
// with a random exponent.
type Slots struct {
	Slot, Max time.Duration // Max 0: no cap
	Ceiling   int           // 1 to 32
	Stay      bool
}

func init() {
	register(kind{
		Info: Info{
			Name:     "slots",
			Summary:  "Random binary growth in slots that begins again at its ceiling. Short waits: for a local upstream.",
			Formula:  "min(base*(2^k - 1), max), k uniform in 0..slot or up to the first that reaches max, slot = n+1; at the ceiling 0 and slot 1 again, or stay",
			Source:   "truncated binary exponential backoff, IEEE 802.3, randomised",
			Defaults: Options{Base: 10 * time.Millisecond, Max: 32 * time.Second, Slots: 10},
		},
		make: func(o Options) Strategy { return Slots{Slot: o.Base, Max: o.Max, Ceiling: o.Slots, Stay: o.Stay} },
	})
}

// slotAt returns the slot number before the failure of that retry; 0 means that the failure
// resets.
func (b Slots) slotAt(retry int) int {
	retry, ceiling := max(retry, 0), max(b.Ceiling, 1)
	if b.Stay {
		return min(retry, ceiling-1) + 1
	}
	return (retry%ceiling + 1) % ceiling
}

// Wait draws k once, but nothing at a reset.
func (b Slots) Wait(s Step, r Rand) time.Duration {
	slot := b.slotAt(s.Retry)
	if slot == 0 {
		return 0
	}
	return b.slots(int(r.Int64N(int64(b.capped(slot)) + 1)))
}

// capped returns the smallest k whose wait is Max or more, but at most slot.
func (b Slots) capped(slot int) int {
	for slot > 1 && b.uncapped(slot-1) >= float64(b.limit()) {
		slot--
	}
	return slot
}

// limit returns the longest wait.
func (b Slots) limit() time.Duration {
	if b.Max <= 0 {
		return Forever
	}
	return b.Max
}

// uncapped returns Slot * (2^k - 1).
func (b Slots) uncapped(k int) float64 { return float64(b.Slot) * float64(int64(1)<<min(k, 62)-1) }

// slots returns the wait for exponent k.
func (b Slots) slots(k int) time.Duration { return ClampDuration(b.uncapped(k), b.limit()) }

// Range returns the waits up to the largest k. The mean is over all k, which are equally
// likely. Without a cap it is Slot * ((2^(slot+1) - 1) / (slot + 1) - 1).
func (b Slots) Range(s Step) Range {
	slot := b.slotAt(s.Retry)
	if slot == 0 {
		return Range{}
	}
	slot = b.capped(slot)
	mean := 0.0
	for k := range slot + 1 {
		mean += float64(b.slots(k)) / float64(slot+1)
	}
	return Range{Mean: time.Duration(mean), Max: b.slots(slot)}
}

func (b Slots) String() string {
	end := "reset"
	if b.Stay {
		end = "stay"
	}
	return fmt.Sprintf("slots base=%v slots=%d %s max=%v", b.Slot, b.Ceiling, end, b.Max)
}
