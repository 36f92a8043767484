package main

import (
	"fmt"
	"io"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
	"github.com/retryproxy/retryproxy/plot"
	"github.com/retryproxy/retryproxy/plot/picture"
)

// document is everything that was measured. retryproxy-plot can draw it.
type document struct {
	rig.Document
	Runs []*runResult `json:"runs"`
}

// runResult is a run and how it ended.
type runResult struct {
	Name    string       `json:"name"` // of the way
	Outage  string       `json:"outage"`
	Clients string       `json:"client_backoff"`
	Proxies int          `json:"proxies,omitempty"`
	Stopped float64      `json:"stopped_seconds"`
	Resumed float64      `json:"resumed_seconds"`
	Verdict verdict      `json:"verdict"`
	Virtual verdict      `json:"in_virtual_time"` // the same storm as package sim plays it
	Seconds []rig.Counts `json:"seconds"`
	Ticks   []rig.Counts `json:"ticks"` // of 100 ms
}

func newRunResult(s *stage, seed uint64) *runResult {
	ticks := s.line.Ticks(s.o.storm.Length)
	r := &runResult{
		Name: s.way, Outage: s.o.outage, Clients: s.o.manner, Stopped: s.stopped.Seconds(), Resumed: s.resumed.Seconds(),
		Ticks: ticks, Seconds: rig.Seconds(ticks),
		Verdict: judge(ticks, s.stopped, s.resumed), Virtual: inVirtualTime(s.way, s.o, seed),
	}
	if s.way == "retryproxy" {
		r.Proxies = s.o.storm.Proxies
	}
	return r
}

// tell prints what happened in each second, and the verdicts.
func (r *runResult) tell(out io.Writer) {
	fmt.Fprintf(out, "%s, outage %s, clients %s\nsecond  good   bad  late  server\n", r.Name, r.Outage, r.Clients)
	for i, s := range r.Seconds {
		fmt.Fprintf(out, "%6d %5d %5d %5d %7d\n", i, s[rig.Good], s.Kinds(rig.Bad), s[rig.Late], s[atServer])
	}
	fmt.Fprintf(out, "%s: %s\nthe same in virtual time: %s\nlive instead of virtual: %s\n\n", r.title(), &r.Verdict, &r.Virtual, r.Verdict.against(&r.Virtual))
}

// title is the run's name in a legend.
func (r *runResult) title() string {
	name := r.Name
	if r.Outage != "stop" {
		name += ", " + r.Outage
	}
	if r.Clients != "naive" {
		name += ", " + r.Clients + " clients"
	}
	if r.Proxies > 1 {
		name += ", many processes"
	}
	return name
}

// pictureSize is that of the picture in docs/explanation/storm.md.
var pictureSize = picture.Size{Width: 1000, Height: 1200}

// figure draws runs over each other.
func figure(runs []*runResult) *plot.Figure {
	f := &plot.Figure{Title: "An outage, second by second"}
	panel := func(title, label string, log bool, value func(s rig.Counts) int) {
		p := plot.Panel{Title: title, X: plot.Axis{Label: "time", Unit: plot.Seconds}, Y: plot.Axis{Label: label, Unit: plot.Count, Log: log}}
		if log {
			p.Y.Min, p.Y.Max = 1, 30_000
		}
		for _, r := range runs {
			s := plot.Series{Name: r.title()}
			for i, second := range r.Seconds {
				if v := value(second); !log || v > 0 { // else the server could not tell
					s.X, s.Y = append(s.X, float64(i)+0.5), append(s.Y, float64(v))
				}
			}
			p.Series = append(p.Series, s)
		}
		if len(runs) > 0 {
			p.Marks = []plot.Mark{{At: runs[0].Stopped, To: runs[0].Resumed, Label: "outage"}}
		}
		f.Panels = append(f.Panels, p)
	}
	panel("Good responses", "a second", false, func(s rig.Counts) int { return s[rig.Good] })
	panel("Errors and tries given up", "a second", false, func(s rig.Counts) int { return s.Kinds(rig.Bad) + s[rig.Late] })
	panel("Requests at the server (it cannot tell while it is stopped)", "at once", true, func(s rig.Counts) int { return s[atServer] })
	return f
}

// meanOver is the stretch of the mean of good responses; share is how much of peace must be back;
// failing is the share of errors that is too many.
const (
	meanOver = 5 * time.Second
	share    = 0.95
	failing  = 0.05
)

// verdict is how a run ended. Times are seconds after the end of the outage, null if it did not happen.
type verdict struct {
	Peace       float64  `json:"good_per_second_in_peace"`
	PeaceFails  float64  `json:"share_failed_in_peace"`
	GoodAgain   *float64 `json:"good_again_seconds"`
	ErrorsUnder *float64 `json:"errors_under_seconds"`
	Peak        int      `json:"peak_at_once_after"`
	PeakWhole   int      `json:"peak_at_once"` // of the whole run
}

// judge sums up a run whose outage lasted from stopped to resumed.
func judge(ticks []rig.Counts, stopped, resumed time.Duration) verdict {
	begin := min(time.Second, stopped/2) // the first second has the connecting in it
	peace, length := rig.Sum(ticks, begin, stopped), time.Duration(len(ticks))*rig.Tick
	v := verdict{
		Peace:      float64(peace[rig.Good]) / (stopped - begin).Seconds(),
		PeaceFails: fails(peace),
		Peak:       rig.Sum(ticks, resumed, length)[atServer],
		PeakWhole:  rig.Sum(ticks, 0, length)[atServer],
	}
	v.GoodAgain = goodAgain(ticks, resumed.Truncate(rig.Tick), v.Peace)
	v.ErrorsUnder = errorsUnder(ticks, resumed.Truncate(rig.Tick))
	return v
}

// fails is the share of tries that did not bring a good response; 0 of none.
func fails(c rig.Counts) float64 {
	bad := c.Kinds(rig.Bad) + c[rig.Late]
	return float64(bad) / float64(max(bad+c[rig.Good], 1))
}

// goodAgain is how long after from the mean of good responses over the last five seconds is back at
// its share of perSecond.
func goodAgain(ticks []rig.Counts, from time.Duration, perSecond float64) *float64 {
	for t := from + rig.Tick; t <= time.Duration(len(ticks))*rig.Tick; t += rig.Tick {
		if float64(rig.Sum(ticks, t-meanOver, t)[rig.Good]) >= share*perSecond*meanOver.Seconds() {
			return new((t - from).Seconds())
		}
	}
	return nil
}

// errorsUnder is how long after from errors and tries given up are under their share of all in every
// stretch of a second, and stay there.
func errorsUnder(ticks []rig.Counts, from time.Duration) *float64 {
	last := time.Duration(len(ticks))*rig.Tick - time.Second
	for t := last; t >= from; t -= rig.Tick {
		s := rig.Sum(ticks, t, t+time.Second)
		if s[rig.Good] > 0 && fails(s) < failing {
			continue
		}
		if t += time.Second; t > last {
			return nil
		}
		return new((t - from).Seconds())
	}
	return new(0.0)
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
