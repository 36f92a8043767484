package simulate

import (
	"math"
	"time"

	"github.com/retryproxy/retryproxy/plot"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/sim"
)

// Document is a simulation in machine-readable form. Times are in seconds.
type Document struct {
	Seed    uint64       `json:"seed"`
	Outage  string       `json:"outage"`
	Begins  float64      `json:"outage_begins_seconds"`
	Ends    float64      `json:"outage_ends_seconds"`
	Length  float64      `json:"length_seconds"`
	Clients int          `json:"clients"`
	Runs    []runView    `json:"runs"`
	Figure  *plot.Figure `json:"figure"` // in the format of retryproxy-plot
}

type runView struct {
	Label       string       `json:"label"`
	Before      float64      `json:"good_per_second_before"`
	During      float64      `json:"good_per_second_during"`
	After       float64      `json:"good_per_second_after"` // in the last quarter
	GoodAgain   *float64     `json:"good_again_seconds"`    // after the outage; null if never, or without an outage
	ErrorsUnder *float64     `json:"errors_under_seconds"`  // likewise
	Peak        int          `json:"peak_at_once_after"`
	Load        *float64     `json:"requests_per_good_answer"` // at the server; null without a good response
	Proxy       *proxyView   `json:"proxy,omitempty"`          // null without a proxy
	Seconds     []sim.Second `json:"seconds"`
}

type proxyView struct {
	Processes int            `json:"processes"`
	Held      int            `json:"held"`    // requests that waited for the breaker
	Queued    int            `json:"queued"`  // requests that waited for the limit
	Dropped   int            `json:"dropped"` // dropped from the queue for newer ones
	Refused   int            `json:"refused"` // refused after the longest wait in the queue
	Retries   int            `json:"retries"`
	Closed    map[string]int `json:"breaker_opened"` // by evidence
	Bound     int            `json:"limit_bound"`    // how often overload bound a limit
}

// Document returns the simulation with the figure that v selects.
func (s *Simulation) Document(v View) *Document {
	w := s.Wish
	d := &Document{
		Seed: w.Seed, Outage: w.Outage, Begins: w.Peace.Seconds(), Ends: (w.Peace + w.Down).Seconds(), Length: w.Length.Seconds(),
		Clients: w.Clients, Runs: make([]runView, len(s.Lines)), Figure: s.Figure(v),
	}
	for i := range s.Lines {
		d.Runs[i] = s.view(&s.Lines[i])
	}
	return d
}

func (s *Simulation) view(l *Line) runView {
	v := runView{Label: l.Label, Before: l.Before, During: l.During, After: l.After, Peak: l.Peak, Proxy: l.viewProxy(), Seconds: l.Result.Seconds}
	if s.Wish.Outage != "none" {
		v.GoodAgain, v.ErrorsUnder = secondsOf(l.Good), secondsOf(l.Errors)
	}
	if !math.IsInf(l.Load, 1) {
		v.Load = &l.Load
	}
	return v
}

func (l *Line) viewProxy() *proxyView {
	if l.Config.Via != sim.ViaProxy {
		return nil
	}
	r := l.Result
	v := &proxyView{
		Processes: len(r.Guards), Held: r.QueuedAtBreaker, Queued: r.QueuedAtLimit, Dropped: r.Dropped, Refused: r.Refused, Retries: r.Retries,
		Closed: map[string]int{},
	}
	for i := range r.Guards {
		v.Bound += int(r.Guards[i].LimitBound)
		for by, n := range r.Guards[i].Opened {
			if n > 0 {
				v.Closed[breaker.OpenedBy(by).String()] += int(n)
			}
		}
	}
	return v
}

func secondsOf(d time.Duration) *float64 {
	if d == sim.Never {
		return nil
	}
	return new(d.Seconds())
}
