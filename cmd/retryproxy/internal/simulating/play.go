package simulating

import (
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/policy/storm"
)

// Simulation is what came of a wish.
type Simulation struct {
	Wish  *Wish
	Lines []Line // as many as runs, in their order
}

// Line is what came of one run.
type Line struct {
	Run
	Result *storm.Result

	// Good responses a second before the outage, during it, and in the last
	// quarter of the time after it.
	Before, During, After float64
	// Good and Errors are when good responses were back and errors were few,
	// after the end of the outage; storm.Never when they were not.
	Good, Errors time.Duration
	Peak         int     // most requests at the server at once after the outage (of the whole run, where there is none)
	Load         float64 // requests that the server got for each good response; +Inf without any
	Closed       int     // how often a breaker is open
}

// The rules of the verdict, as in docs/storm.md.
const (
	back    = 0.95 // share of the good responses before that must be back...
	failing = 0.05 // ...and of errors that is too many
)

// Play plays all runs, as many at once as there are cores, and returns when all
// have ended.
func Play(w *Wish, runs []Run) *Simulation {
	s := &Simulation{Wish: w, Lines: make([]Line, len(runs))}
	var all sync.WaitGroup
	room := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range runs {
		room <- struct{}{}
		all.Go(func() {
			s.Lines[i] = judge(w, runs[i], storm.Run(runs[i].Config))
			<-room
		})
	}
	all.Wait()
	return s
}

// judge sums up a run.
func judge(w *Wish, run Run, r *storm.Result) Line {
	l := Line{Run: run, Result: r, Load: math.Inf(1)}
	begin, stopped, resumed, end := min(time.Second, w.Peace/2), w.Peace, w.Peace+w.Down, w.Length
	rate := func(from, to time.Duration) float64 { return float64(r.Sum(from, to).Good) / (to - from).Seconds() }
	l.Before, l.During = rate(begin, stopped), rate(stopped, resumed)
	l.After = rate(end-max(time.Second, (end-resumed)/4), end)
	l.Good, l.Errors = r.GoodputRecovered(resumed, l.Before, back), r.ErrorsUnder(resumed, failing)
	l.Peak = r.Sum(resumed, end).AtOnce
	if good := r.Sum(0, end).Good; good > 0 {
		l.Load = float64(r.Sent) / float64(good)
	}
	if w.Outage == "none" {
		l.Peak = r.Sum(0, end).AtOnce
	}
	for i := range r.Guards {
		for _, n := range r.Guards[i].Opened {
			l.Closed += int(n)
		}
	}
	return l
}
