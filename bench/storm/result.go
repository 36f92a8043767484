package main

import (
	"fmt"
	"io"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/draw"
	"github.com/retryproxy/retryproxy/bench/internal/rig"
	"github.com/retryproxy/retryproxy/ctl/plot"
	"github.com/retryproxy/retryproxy/ctl/plot/picture"
	"github.com/retryproxy/retryproxy/ctl/sim"
)

// document is everything that was measured. retryproxyctl plot can draw it.
type document struct {
	rig.Document
	Runs []*runResult `json:"runs"`
}

// runResult is the result of a run.
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

func newRunResult(s *stage) *runResult {
	ticks := s.line.Ticks(s.o.storm.Length)
	r := &runResult{
		Name: s.way, Outage: s.o.outage, Clients: s.o.clientBackoff, Stopped: s.stopped.Seconds(), Resumed: s.resumed.Seconds(),
		Ticks: ticks, Seconds: rig.Seconds(ticks),
		Verdict: judge(recorded(ticks), s.stopped, s.resumed), Virtual: inVirtualTime(s.way, s.o),
	}
	if s.way == "retryproxy" {
		r.Proxies = s.o.storm.Proxies
	}
	return r
}

// print writes the counts of each second and the verdicts.
func (r *runResult) print(out io.Writer) {
	fmt.Fprintf(out, "%s, outage %s, clients %s\nsecond  good   bad  late  server\n", r.Name, r.Outage, r.Clients)
	for i, s := range r.Seconds {
		fmt.Fprintf(out, "%6d %5d %5d %5d %7d\n", i, s[rig.Good], s.Kinds(rig.Bad), s[rig.Late], s[atServer])
	}
	fmt.Fprintf(out, "%s: %s\nthe same in virtual time: %s\nlive instead of virtual: %s\n\n", r.title(), &r.Verdict, &r.Virtual, r.Verdict.against(&r.Virtual))
}

// title returns the name of the run in a legend.
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

// pictureSize is the size of the picture in docs/explanation/storm.md.
var pictureSize = picture.Size{Width: 1000, Height: 1200}

// figure draws all runs into the same panels.
func figure(runs []*runResult) *plot.Figure {
	var all []draw.Run
	var marks []plot.Mark
	for _, r := range runs {
		all = append(all, draw.Run{Name: r.title(), Seconds: r.Seconds})
		marks = []plot.Mark{{At: r.Stopped, To: r.Resumed, Label: "outage"}}
	}
	return draw.Seconds("An outage, second by second", all, marks,
		draw.Panel{Title: "Good responses", Label: "a second", Value: func(s rig.Counts) int { return s[rig.Good] }},
		draw.Panel{Title: "Errors and requests given up", Label: "a second", Value: func(s rig.Counts) int { return s.Kinds(rig.Bad) + s[rig.Late] }},
		draw.Panel{Title: "Requests at the server (it cannot tell while it is stopped)", Label: "at once", Log: true, Value: func(s rig.Counts) int { return s[atServer] }})
}

// The service is good again when this share of the good responses in peace is back. Errors are under
// control when they stay below the share failing.
const (
	share   = 0.95
	failing = 0.05
)

// verdict sums up a run. Times are in seconds after the end of the outage; null means never.
type verdict struct {
	Peace       float64  `json:"good_per_second_in_peace"`
	PeaceFails  float64  `json:"share_failed_in_peace"`
	GoodAgain   *float64 `json:"good_again_seconds"`
	ErrorsUnder *float64 `json:"errors_under_seconds"`
	Peak        int      `json:"peak_at_once_after"`
	PeakWhole   int      `json:"peak_at_once"` // of the whole run
}

// recorded converts the counts of a live run to a result of package sim.
func recorded(ticks []rig.Counts) *sim.Result {
	all := make([]sim.Second, len(ticks))
	for i, c := range ticks {
		all[i] = sim.Second{Good: c[rig.Good], Bad: c.Kinds(rig.Bad), Late: c[rig.Late], AtOnce: c[atServer]}
	}
	return sim.Recorded(all)
}

// judge sums up a run with an outage from stopped to resumed.
func judge(r *sim.Result, stopped, resumed time.Duration) verdict {
	begin := min(time.Second, stopped/2) // the clients connect in the first second
	peace, end := r.Sum(begin, stopped), 24*time.Hour
	bad := peace.Bad + peace.Late
	v := verdict{
		Peace:      float64(peace.Good) / (stopped - begin).Seconds(),
		PeaceFails: float64(bad) / float64(max(bad+peace.Good, 1)),
		Peak:       r.Sum(resumed, end).AtOnce,
		PeakWhole:  r.Sum(0, end).AtOnce,
	}
	resumed = resumed.Truncate(rig.Tick)
	v.GoodAgain, v.ErrorsUnder = seconds(r.GoodputRecovered(resumed, v.Peace, share)), seconds(r.ErrorsUnder(resumed, failing))
	return v
}

func seconds(d time.Duration) *float64 {
	if d == sim.Never {
		return nil
	}
	return new(d.Seconds())
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

// against describes how v differs from another verdict on the same storm.
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
