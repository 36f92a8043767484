package main

import (
	"fmt"
	"time"
)

// never is the time of what did not happen.
const never = time.Duration(-1)

// meanOver is the stretch of the mean of good responses; share is how much of
// peace must be back; failing is the share of errors that is too many.
const (
	meanOver = 5 * time.Second
	share    = 0.95
	failing  = 0.05
)

// verdict is how a run ended. Times are seconds after the end of the outage,
// null when it did not happen.
type verdict struct {
	Peace       float64  `json:"good_per_second_in_peace"`
	PeaceFails  float64  `json:"share_failed_in_peace"`
	GoodAgain   *float64 `json:"good_again_seconds"`
	ErrorsUnder *float64 `json:"errors_under_seconds"`
	Peak        int      `json:"peak_at_once_after"`
	PeakWhole   int      `json:"peak_at_once"` // of the whole run
	After       tick     `json:"after"`        // sums of the time after the outage
}

// judge sums up a run whose outage lasted from stopped to resumed.
func judge(ticks []tick, stopped, resumed time.Duration) verdict {
	begin := min(time.Second, stopped/2) // the first second has the connecting in it
	peace := sum(ticks, begin, stopped)
	length := time.Duration(len(ticks)) * tickTime
	v := verdict{
		Peace:      float64(peace.Good) / (stopped - begin).Seconds(),
		PeaceFails: peace.fails(),
		Peak:       sum(ticks, resumed, length).AtOnce,
		PeakWhole:  sum(ticks, 0, length).AtOnce,
		After:      sum(ticks, resumed, length),
	}
	v.GoodAgain = seconds(goodAgain(ticks, resumed, v.Peace))
	v.ErrorsUnder = seconds(errorsUnder(ticks, resumed))
	return v
}

// goodAgain is how long after from the mean of good responses over the last
// five seconds is back at its share of perSecond.
func goodAgain(ticks []tick, from time.Duration, perSecond float64) time.Duration {
	from = from.Truncate(tickTime)
	for t := from + tickTime; t <= time.Duration(len(ticks))*tickTime; t += tickTime {
		if float64(sum(ticks, t-meanOver, t).Good) >= share*perSecond*meanOver.Seconds() {
			return t - from
		}
	}
	return never
}

// errorsUnder is how long after from errors and tries given up are under their
// share of all in every stretch of a second, and stay there.
func errorsUnder(ticks []tick, from time.Duration) time.Duration {
	from = from.Truncate(tickTime)
	last := time.Duration(len(ticks))*tickTime - time.Second
	for t := last; t >= from; t -= tickTime {
		s := sum(ticks, t, t+time.Second)
		if s.all() > 0 && s.fails() < failing {
			continue
		}
		if t += time.Second; t > last {
			return never
		}
		return t - from
	}
	return 0
}

func seconds(d time.Duration) *float64 {
	if d == never {
		return nil
	}
	s := d.Seconds()
	return &s
}

func (v *verdict) String() string {
	return fmt.Sprintf("good again after %s, errors under %.0f%% after %s, peak at the server %d (peace: %.1f good/s, %.1f%% failed)",
		after(v.GoodAgain), 100*failing, after(v.ErrorsUnder), v.Peak, v.Peace, 100*v.PeaceFails)
}

func after(s *float64) string {
	if s == nil {
		return "never"
	}
	return fmt.Sprintf("%.1f s", *s)
}

// against is how far v is from another verdict on the same storm.
func (v *verdict) against(o *verdict) string {
	return fmt.Sprintf("good again %s, errors under %.0f%% %s, peak at the server %+d",
		apart(v.GoodAgain, o.GoodAgain), 100*failing, apart(v.ErrorsUnder, o.ErrorsUnder), v.Peak-o.Peak)
}

func apart(a, b *float64) string {
	switch {
	case a == nil && b == nil:
		return "never in both"
	case a == nil:
		return "never, though in virtual time it is"
	case b == nil:
		return "though never in virtual time"
	}
	return fmt.Sprintf("%+.1f s", *a-*b)
}
