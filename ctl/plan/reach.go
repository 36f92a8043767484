package plan

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// Reach answers the inverse questions about a time T: how many retries were made until then, how
// long is the current wait, and when does the next retry notice a recovery? It assumes that retries
// are limited neither in number nor in time. Times are in seconds.
type Reach struct {
	// Endless means that more than maxSteps retries begin until T; then nothing else is set.
	Endless bool
	// Retries begun until T, inclusive.
	Retries Spread
	// LastBegan is when the last of them began (0 for the first attempt), and NextWait is the wait
	// after it.
	LastBegan, NextWait Spread
	// Noticed is when the first retry at or after T begins: a recovery at T is noticed then. Late is
	// the difference.
	Noticed, Late Spread
}

// Spread is a random number: its mean; 95 % of values are at least Low, and 95 % at most High.
type Spread struct{ Mean, Low, High float64 }

const (
	walks     = 2000
	maxSteps  = 100_000   // of one walk
	maxDrawn  = 4_000_000 // steps of all walks, for a fast response
	quantile  = 0.05
	reachSeed = 0x7265616368
)

func reach(b backoff.Strategy, o Options) *Reach {
	r := rand.New(rand.NewPCG(o.Seed, reachSeed))
	var all [5][]float64
	for steps := 0; len(all[0]) < walks && steps < maxDrawn; {
		w, ok := walkTo(b, o, r)
		if !ok {
			return &Reach{Endless: true}
		}
		steps += w.begun + 1
		for i, v := range []float64{float64(w.begun), w.last.Seconds(), w.wait.Seconds(), w.noticed.Seconds(), (w.noticed - o.Elapsed).Seconds()} {
			all[i] = append(all[i], v)
		}
	}
	return &Reach{Retries: spread(all[0]), LastBegan: spread(all[1]), NextWait: spread(all[2]), Noticed: spread(all[3]), Late: spread(all[4])}
}

// random reports whether the answers are means and quantiles of different draws.
func (r *Reach) random() bool {
	return r.NextWait.Low != r.NextWait.High || r.Noticed.Low != r.Noticed.High
}

// walked is the result of one random walk.
type walked struct {
	begun               int
	last, wait, noticed time.Duration
}

// walkTo retries until a retry begins after the given time; ok is false if that takes too many.
func walkTo(b backoff.Strategy, o Options, r backoff.Rand) (w walked, ok bool) {
	w.noticed = -1
	var s backoff.Step
	for s.Retry = range maxSteps {
		s.Elapsed = backoff.AddUp(w.last, o.Attempt)
		wait := b.Wait(s, r)
		at := backoff.AddUp(s.Elapsed, wait)
		if at >= o.Elapsed && w.noticed < 0 {
			w.noticed = at
		}
		if at > o.Elapsed {
			w.wait = wait
			return w, true
		}
		w.begun, w.last, s.Previous = w.begun+1, at, wait
	}
	return w, false
}

func spread(values []float64) Spread {
	slices.Sort(values)
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	at := func(q float64) float64 { return values[int(math.Round(q*float64(len(values)-1)))] }
	return Spread{Mean: sum / float64(len(values)), Low: at(quantile), High: at(1 - quantile)}
}
