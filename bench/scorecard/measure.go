package main

import (
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
	"github.com/retryproxy/retryproxy/ctl/sim"
)

// Good again means this share of good requests, and that errors are over means that they stay below the share
// failing.
const (
	share   = 0.95
	failing = 0.05
)

// leastRate is the number of good responses a second in peace above which times can be measured.
const leastRate = 5

// measure sums up a run.
func (s *stage) measure() *measures {
	r := s.row
	from, to, end := s.o.scale(r.fault.from), s.o.scale(r.fault.to), s.o.scale(r.end)
	length := max(end, s.line.Since()+rig.Tick)
	ticks := s.line.Ticks(length)
	all := rig.Sum(ticks, 0, length)
	m := &measures{Counts: all, Second: rig.Seconds(ticks), Peak: rig.Sum(ticks, from, length)[atServers]}
	m.During, m.After = 1, nil
	if got := shareOf(rig.Sum(ticks, from, to)); got != nil {
		m.During = *got
	}
	m.After = shareOf(rig.Sum(ticks, to, length))
	m.Requests = all[served] + all[unserved]
	if r.crowd == nil {
		n := all[unserved]
		m.Lost = &n
	} else {
		m.Requests = all[rig.Good]
	}
	m.Attempts = float64(s.received()) / float64(max(m.Requests, 1))
	m.times(ticks, from, to, end)
	return m
}

// shareOf returns the share of good requests; of good tries where requests are not counted. Both count when
// they came. It is nil if there were none.
func shareOf(c rig.Counts) *float64 {
	good, bad := c[served], c[unserved]
	if good+bad == 0 {
		good, bad = c[rig.CameGood], c[rig.CameBad]
	}
	if good+bad == 0 {
		return nil
	}
	return new(float64(good) / float64(good+bad))
}

// times measures when things are good again after a fault, within the time in which clients come. Clients that
// try until they succeed are good again when the mean over 5 s of good responses is back at the share of
// peace. Of users, from then on the share of the requests that come in each second has to be good.
func (m *measures) times(ticks []rig.Counts, from, to, end time.Duration) {
	begin := min(time.Second, from/2) // clients connect in the first second
	peace := float64(rig.Sum(ticks, begin, from)[rig.Good]) / max((from-begin).Seconds(), 0.1)
	if m.Timed = peace >= leastRate && end > to; !m.Timed {
		return
	}
	ticks = ticks[:min(len(ticks), int(end/rig.Tick))]
	tries := recorded(ticks, func(c rig.Counts) (good, bad int) { return c[rig.Good], c.Kinds(rig.Bad) + c[rig.Late] })
	m.Errors = seconds(tries.ErrorsUnder(to, failing))
	if m.Lost == nil {
		m.Again = seconds(tries.GoodputRecovered(to, peace, share))
		return
	}
	requests := recorded(ticks, func(c rig.Counts) (good, bad int) { return c[served], c[unserved] })
	m.Again = seconds(requests.ErrorsUnder(to, 1-share))
}

// recorded returns counts of ticks as package sim judges them.
func recorded(ticks []rig.Counts, of func(c rig.Counts) (good, bad int)) *sim.Result {
	all := make([]sim.Second, len(ticks))
	for i, c := range ticks {
		all[i].Good, all[i].Bad = of(c)
	}
	return sim.Recorded(all)
}

func seconds(d time.Duration) *float64 {
	if d == sim.Never {
		return nil
	}
	return new(d.Seconds())
}
