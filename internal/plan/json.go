package plan

import (
	"github.com/retryproxy/retryproxy/plot"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/budget"
)

// Document is a plan for programs. Times are in seconds.
type Document struct {
	AttemptSeconds float64        `json:"attempt_seconds"` // the assumed duration of each attempt
	ElapsedSeconds *float64       `json:"elapsed_seconds,omitempty"`
	Seed           uint64         `json:"seed"`
	Strategies     []strategyView `json:"strategies"`
	RatioChanges   []Change       `json:"ratio_changes,omitempty"`
	Figure         *plot.Figure   `json:"figure,omitempty"` // in the format of retryproxy-plot; absent without retries
}

type strategyView struct {
	Label     string     `json:"label"`
	Route     string     `json:"route,omitempty"`
	Strategy  string     `json:"strategy"`
	Options   string     `json:"options"` // the strategy with all its options, as text
	Formula   string     `json:"formula"`
	Source    string     `json:"source"`
	Bounded   bool       `json:"bounded"` // false: 1 wait in 1000 is below its min and 1 above its max, and likewise for begins
	Retries   []rowView  `json:"retries"`
	WorstCase worstView  `json:"worst_case"`
	AtElapsed *Reach     `json:"at_elapsed,omitempty"`
	Ratio     *ratioView `json:"ratio,omitempty"`
}

type rowView struct {
	Retry  int       `json:"retry"` // from 1
	Wait   rangeView `json:"wait_seconds"`
	Begins rangeView `json:"begins_seconds"` // since the first attempt began
	Made   making    `json:"made"`
}

type rangeView struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	Max  float64 `json:"max"`
}

type worstView struct {
	Attempts            int      `json:"attempts"`
	Seconds             *float64 `json:"seconds"` // until the response headers; null without a limit
	SlowAttempts        int      `json:"slow_attempts"`
	LastBeginsSeconds   float64  `json:"last_begins_seconds"`
	AmplificationAlone  float64  `json:"amplification_without_budget"`
	AmplificationBudget *float64 `json:"amplification_with_budget"` // null if the route has no budget
}

// ratioView holds the closed forms, which ignore the cap.
type ratioView struct {
	FirstWaitSeconds float64  `json:"first_wait_seconds"`
	Growth           float64  `json:"growth"`                               // r
	WaitAfterSeconds *float64 `json:"wait_after_elapsed_seconds,omitempty"` // a + (r-1) T
	Tries            *float64 `json:"tries_until_elapsed,omitempty"`        // log_r(1 + (r-1) T/a)
}

// Document returns the plan with the figure that v describes.
func (p *Plan) Document(v View) *Document {
	d := &Document{AttemptSeconds: p.Options.Attempt.Seconds(), Seed: p.Options.Seed, Strategies: make([]strategyView, len(p.Lines)), RatioChanges: p.Changes}
	if p.Options.Elapsed > 0 {
		d.ElapsedSeconds = new(p.Options.Elapsed.Seconds())
	}
	for i := range p.Lines {
		d.Strategies[i] = p.viewLine(&p.Lines[i])
	}
	if p.Drawable() {
		d.Figure = p.Figure(v)
	}
	return d
}

func (p *Plan) viewLine(l *Line) strategyView {
	info, _ := backoff.Describe(l.Strategy)
	v := strategyView{
		Label: l.Label, Route: l.Route, Strategy: l.Strategy, Options: l.describe(), Formula: info.Formula, Source: info.Source,
		Bounded: backoff.Bounded(l.Backoff), Retries: make([]rowView, len(l.Rows)), WorstCase: l.viewWorst(), AtElapsed: l.Reach, Ratio: p.viewRatio(l),
	}
	for i, row := range l.Rows {
		v.Retries[i] = rowView{Retry: row.Retry, Wait: viewRange(row.Wait), Begins: viewRange(row.Total), Made: l.made(row)}
	}
	return v
}

func viewRange(r backoff.Range) rangeView {
	return rangeView{r.Min.Seconds(), r.Mean.Seconds(), r.Max.Seconds()}
}

func (l *Line) viewWorst() worstView {
	w := worstView{
		Attempts: l.Worst.Attempts, SlowAttempts: l.Worst.SlowAttempts, LastBeginsSeconds: l.Worst.LastBegins.Seconds(),
		AmplificationAlone: float64(l.Worst.Attempts),
	}
	if l.Worst.Total != backoff.Forever {
		w.Seconds = new(l.Worst.Total.Seconds())
	}
	if b := l.budget(); b != nil {
		w.AmplificationBudget = new(b.Amplification(l.Worst.Attempts, 0))
	}
	return w
}

// budget returns the line's own budget or, for a strategy that the user named, the default one.
func (l *Line) budget() *budget.Config {
	if l.Route == "" && l.Budget == nil {
		return new(budget.Default())
	}
	return l.Budget
}

func (p *Plan) viewRatio(l *Line) *ratioView {
	r, is := l.ratio()
	if !is {
		return nil
	}
	v := &ratioView{FirstWaitSeconds: r.First.Seconds(), Growth: r.Growth()}
	if t := p.Options.Elapsed; t > 0 {
		v.WaitAfterSeconds, v.Tries = new(r.After(t).Seconds()), new(r.Tries(t))
	}
	return v
}
