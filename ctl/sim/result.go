package sim

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
)

// Second holds the counts of one second.
type Second struct {
	Good   int `json:"good"`    // 200 in time
	Bad    int `json:"bad"`     // another response, or no connection
	Late   int `json:"late"`    // abandoned by the client
	AtOnce int `json:"at_once"` // maximum of requests in the server; constant while it is stopped
}

// Result is the result of a storm.
type Result struct {
	Seconds []Second

	Sent   int // requests that reached the server
	Queued int // requests that waited for the breaker or the limit
	Lost   int // requests without a 200 after Clients.Tries
	Guards []breaker.GuardState

	// First is the time from the end of the first fault to the first good response after
	// it; Never if there was none.
	First time.Duration

	length time.Duration
	overAt time.Duration // end of the first fault; 0: not yet
	ticks  []Second      // the counts per tickTime

	atOnce  int           // requests in the server now
	carried time.Duration // index of the first tick without the current level
}

// tickTime is the resolution of recovery times.
const tickTime = 100 * time.Millisecond

func newResult(c *Config) *Result {
	return &Result{
		First:  Never,
		length: c.Length,
		ticks:  make([]Second, c.Length/tickTime+1),
	}
}

func (r *Result) at(now time.Duration) *Second { return &r.ticks[now/tickTime] }

func (r *Result) good(now time.Duration) {
	r.at(now).Good++
	if r.overAt > 0 && r.First == Never {
		r.First = now - r.overAt
	}
}

// over records that a fault has ended.
func (r *Result) over(index int, now time.Duration) {
	if index == 0 {
		r.overAt = now
	}
}

func (r *Result) bad(now time.Duration)  { r.at(now).Bad++ }
func (r *Result) late(now time.Duration) { r.at(now).Late++ }

// level records the number of requests in the server from now on.
func (r *Result) level(now time.Duration, atOnce int) {
	r.until(now)
	t := r.at(now)
	t.AtOnce = max(t.AtOnce, atOnce)
	r.atOnce = atOnce
}

// until records the current level in the ticks that began since the last change.
func (r *Result) until(now time.Duration) {
	for r.carried*tickTime <= now && int(r.carried) < len(r.ticks) {
		t := &r.ticks[r.carried]
		t.AtOnce = max(t.AtOnce, r.atOnce)
		r.carried++
	}
}

func (r *Result) finish() {
	r.until(r.length)
	r.ticks = r.ticks[:int(r.length/tickTime)]
	for at := time.Duration(0); at+time.Second <= r.length; at += time.Second {
		r.Seconds = append(r.Seconds, r.Sum(at, at+time.Second))
	}
}

// Recorded returns the Result of a storm that was played elsewhere, such as with real processes, from
// its counts in each tenth of a second.
func Recorded(ticks []Second) *Result {
	return &Result{length: time.Duration(len(ticks)) * tickTime, ticks: ticks}
}

// Sum returns the counts from from (inclusive) to to (exclusive), with a resolution of a
// tenth of a second.
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

// Never is the time of an event that did not happen.
const Never = backoff.Forever

// GoodputRecovered returns how long after from the mean of good responses over the last
// five seconds reaches share of perSecond; Never if it does not.
func (r *Result) GoodputRecovered(from time.Duration, perSecond, share float64) time.Duration {
	const mean = 5 * time.Second
	for t := from + tickTime; t <= r.length; t += tickTime {
		if float64(r.Sum(t-mean, t).Good) >= share*perSecond*mean.Seconds() {
			return t - from
		}
	}
	return Never
}

// ErrorsUnder returns how long after from errors stay below share: the end of the last
// second in which errors and abandoned tries were not below share, or in which nothing
// happened. It returns Never if there is no such end.
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
