package simulate

import (
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/ctl/sim"
)

// Simulation is the result of a Wish.
type Simulation struct {
	Wish  *Wish
	Lines []Line // one per run, in their order
}

// Line is the result of one run.
type Line struct {
	Run
	Result *sim.Result

	// Before, During and After are the good responses per second before the outage, during
	// it, and in the last quarter of the time after it.
	Before, During, After float64
	// Good and Errors are when good responses were back and errors were few, after the end
	// of the outage; sim.Never if they were not.
	Good, Errors time.Duration
	Peak         int     // maximum of requests in the server after the outage (over the whole run, if there is none)
	Load         float64 // requests that the server got per good response; +Inf without any
}

// The criteria, as in docs/explanation/storm.md.
const (
	back    = 0.95 // share of the earlier good responses that must be back...
	failing = 0.05 // ...and share of errors that is too high
)

// Play runs all runs, as many concurrently as there are cores, and returns when all have
// ended.
func Play(w *Wish, runs []Run) *Simulation {
	s := &Simulation{Wish: w, Lines: make([]Line, len(runs))}
	var all sync.WaitGroup
	room := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range runs {
		room <- struct{}{}
		all.Go(func() {
			s.Lines[i] = judge(w, runs[i], sim.Run(runs[i].Config))
			<-room
		})
	}
	all.Wait()
	return s
}

// judge summarises a run.
func judge(w *Wish, run Run, r *sim.Result) Line {
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
	return l
}
