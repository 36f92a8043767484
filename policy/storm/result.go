package storm

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// Second is what happened within one second.
type Second struct {
	Good   int // 200 in time
	Bad    int // another answer, or no connection
	Late   int // given up
	AtOnce int // most requests the server had at once; while it is stopped, none are added or taken away
}

// Result is what a storm brought.
type Result struct {
	Seconds []Second

	Sent            int // requests that reached the server
	QueuedAtBreaker int // had to wait for the breaker
	QueuedAtLimit   int // had to wait for the limit
	Dropped         int // lost their place in the queue to newer ones
	Refused         int // waited in the queue as long as allowed
	Retries         int // of the proxies
	Guards          []policy.GuardState

	// First is when the first good response came after the end of the first
	// fault, counted from there; Never when none did.
	First time.Duration

	length time.Duration
	overAt time.Duration // end of the first fault; 0: not yet
	ticks  []Second      // the same by tickTime

	atOnce  int           // the server's level now
	carried time.Duration // number of the tick that it has not been carried into
}

// tickTime is how finely times of recovery are known.
const tickTime = 100 * time.Millisecond

func newResult(c *Config) *Result {
	return &Result{
		First:   Never,
		length:  c.Length,
		Seconds: make([]Second, c.Length/time.Second+1),
		ticks:   make([]Second, c.Length/tickTime+1),
	}
}

func (r *Result) at(now time.Duration) (*Second, *Second) {
	return &r.Seconds[now/time.Second], &r.ticks[now/tickTime]
}

func (r *Result) good(now time.Duration) {
	a, b := r.at(now)
	a.Good++
	b.Good++
	if r.overAt > 0 && r.First == Never {
		r.First = now - r.overAt
	}
}

// over notes that a fault has ended.
func (r *Result) over(index int, now time.Duration) {
	if index == 0 {
		r.overAt = now
	}
}

func (r *Result) bad(now time.Duration) {
	a, b := r.at(now)
	a.Bad++
	b.Bad++
}

func (r *Result) late(now time.Duration) {
	a, b := r.at(now)
	a.Late++
	b.Late++
}

// level notes how many requests the server has from now on.
func (r *Result) level(now time.Duration, atOnce int) {
	r.until(now)
	a, b := r.at(now)
	a.AtOnce = max(a.AtOnce, atOnce)
	b.AtOnce = max(b.AtOnce, atOnce)
	r.atOnce = atOnce
}

// until carries the level into the stretches of time that began since the last
// one: in those without a change it is all there was.
func (r *Result) until(now time.Duration) {
	for r.carried*tickTime <= now && int(r.carried) < len(r.ticks) {
		a, b := r.at(r.carried * tickTime)
		a.AtOnce = max(a.AtOnce, r.atOnce)
		b.AtOnce = max(b.AtOnce, r.atOnce)
		r.carried++
	}
}

func (r *Result) finish() {
	r.until(r.length)
	n := int(r.length / time.Second)
	r.Seconds = r.Seconds[:n]
	r.ticks = r.ticks[:int(r.length/tickTime)]
}

// Sum adds up from from (inclusive) to to (exclusive), to a tenth of a second.
func (r *Result) Sum(from, to time.Duration) Second {
	var s Second
	for _, t := range r.ticks[max(0, from/tickTime):min(to/tickTime, time.Duration(len(r.ticks)))] {
		s.Good += t.Good
		s.Bad += t.Bad
		s.Late += t.Late
		s.AtOnce = max(s.AtOnce, t.AtOnce)
	}
	return s
}

// Never is the time of what did not happen.
const Never = policy.Forever

// GoodputRecovered is how long after from the mean of good responses over the last five
// seconds is back at share of perSecond, Never when it does not come back.
func (r *Result) GoodputRecovered(from time.Duration, perSecond, share float64) time.Duration {
	const mean = 5 * time.Second
	for t := from + tickTime; t <= r.length; t += tickTime {
		if float64(r.Sum(t-mean, t).Good) >= share*perSecond*mean.Seconds() {
			return t - from
		}
	}
	return Never
}

// ErrorsUnder is how long after from the last second ends in which errors and
// tries given up were not under share of all, or in which nothing happened;
// Never when that is so to the end.
func (r *Result) ErrorsUnder(from time.Duration, share float64) time.Duration {
	for t := r.length - time.Second; t >= from; t -= tickTime {
		s := r.Sum(t, t+time.Second)
		if all := s.Good + s.Bad + s.Late; all == 0 || float64(s.Bad+s.Late) >= share*float64(all) {
			t += time.Second
			if t > r.length-time.Second {
				return Never
			}
			return t - from
		}
	}
	return 0
}
