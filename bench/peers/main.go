// Command peers compares retryproxy with HAProxy and nginx on the same work, in one run on one
// machine, and reports which of its goals are met.
//
//	make bench-peers
//	go run ./bench/peers --cases get,post16k --rounds 9 --json bin/peers.json
//	go run ./bench/peers --growth routes,fields --png growth.png
//	go run ./bench/peers --cases instructions --proxy bin/retryproxy-named
//
// The proxy under test has a core of its own. The upstream, which is a role of this program, and wrk or h2load, which
// send the requests, have the others. The figure is the CPU time of the proxy's processes per request (utime
// + stime of /proc/PID/stat), because on a small machine the throughput also depends on the load. Absolute
// figures depend on the machine and its other work. So all proxies run concurrently, each gets a second of
// load in turn, ratios are taken within each round, and the table has their median, lowest and highest.
//
// retryproxy has default settings. The cases that need other settings say so.
//
// --growth measures the same cost along axes: connections, routes, bytes of bodies, the share of failing
// responses, request headers. HAProxy shows which growth is usual. The cases of instructions count user
// instructions per request under valgrind. Other load does not disturb it; counts differ by some 2 %.
//
// Exit codes: 0 everything was measured, whatever the results; 1 something could not be; 2 wrong arguments.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/draw"
	"github.com/retryproxy/retryproxy/bench/internal/rig"
	"github.com/retryproxy/retryproxy/ctl/plot/picture"
)

func main() { rig.Main("peers", run) }

// slice is the length of a turn.
const slice = time.Second

// stage is what all cases share.
type stage struct {
	draw.Files
	ctx     context.Context
	proxy   string // the program
	cases   []string
	growth  []string // axes
	peers   []string // besides retryproxy
	rounds  int
	waiting int // requests

	env      []string // settings of retryproxy besides the defaults
	grpc     string   // bench/interop/grpcload as a program, if it makes the load
	wire     wire     // that clients speak
	wireUp   wire     // that the upstream speaks: http11 or h2c
	cores    rig.Division
	upstream string
	progress *log.Logger
}

func parse(args []string, stderr io.Writer) (*stage, error) {
	s := &stage{peers: []string{haproxy, nginx}, progress: log.New(stderr, "", 0)}
	f := rig.NewFlags("peers", stderr, &s.proxy)
	s.Flags(f)
	f.Some(&s.cases, "cases", "", names(cases, func(c testCase) string { return c.name }), "what is measured; default all but those of instructions, or none with --growth")
	f.Some(&s.growth, "growth", "", names(axes, func(a axis) string { return a.name }), "axes along which cost is measured")
	rig.Number(f, &s.waiting, "waiting", rig.AtMost(10_000), 1, 20_000, "requests in backoff for their memory")
	rig.Number(f, &s.rounds, "rounds", 7, 1, 1000, "rounds, in each of which every proxy has its turn")
	f.Check(func(c *rig.Check) {
		if len(s.cases)+len(s.growth) == 0 {
			s.cases = slices.DeleteFunc(names(cases, func(c testCase) string { return c.name }), isCount)
		}
	})
	return s, f.Parse(args)
}

// installed checks that the programs that s measures with are installed.
func (s *stage) installed() error {
	var c rig.Check
	c.Installed("wrk")
	switch others := slices.ContainsFunc(s.cases, func(n string) bool { return !isCount(n) }); {
	case others:
		c.Installed(s.peers...)
	case len(s.growth) > 0:
		c.Installed(haproxy)
	}
	if slices.ContainsFunc(s.cases, isCount) {
		c.Installed("valgrind")
	}
	return rig.Wrong(c.Err())
}

func names[T any](all []T, name func(T) string) (list []string) {
	for _, v := range all {
		list = append(list, name(v))
	}
	return list
}

// proxies returns the names of all proxies, retryproxy last.
func (s *stage) proxies() []string { return append(slices.Clone(s.peers), ours) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if err := s.installed(); err != nil {
		return err
	}
	var b rig.Bed
	defer b.End()
	s.ctx, s.cores = ctx, rig.Divide()
	if s.upstream, err = b.StartUpstream(s.cores.Load); err != nil {
		return fmt.Errorf("upstream: %w", err)
	}
	d := &document{Document: rig.NewDocument(args, rig.Version(haproxy, "-v"), rig.Version(nginx, "-v"), rig.Version(s.proxy, "version"))}
	for _, c := range cases {
		if !slices.Contains(s.cases, c.name) {
			continue
		}
		r := &result{Case: c.name, Work: c.work, Goal: c.goal, Unit: c.unit}
		if err := c.measure(s, r); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		r.conclude(c.met)
		s.progress.Printf("%s: retryproxy %s; %s: %s", c.name, r.cell(ours), r.Goal, r.verdict())
		d.Results = append(d.Results, r)
	}
	if err := s.grow(d); err != nil {
		return err
	}
	d.print(stdout)
	if len(d.Growths) > 0 {
		d.Figure = d.figure()
	}
	return s.Write(d, d.Figure, picture.Size{Width: 1000, Height: 1100})
}

// document is everything that was measured.
type document struct {
	rig.Document
	Results []*result `json:"results,omitempty"`
	Growths []*growth `json:"growths,omitempty"`
}

// print writes the tables.
func (d *document) print(w io.Writer) {
	d.Head(w)
	if len(d.Results) > 0 {
		fmt.Fprintf(w, "Median of the rounds; in brackets the median, lowest and highest ratio to HAProxy within a round.\n\n")
		fmt.Fprintf(w, "| work | unit | HAProxy | nginx | retryproxy | goal | |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	}
	for _, r := range d.Results {
		work := r.Work
		if r.Note != "" {
			work += " (" + r.Note + ")"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s |\n", work, r.Unit, r.cell(haproxy), r.cell(nginx), r.cell(ours), r.Goal, r.verdict())
	}
	for _, r := range d.Results {
		fmt.Fprint(w, r.more)
	}
	for _, g := range d.Growths {
		g.print(w)
	}
}

// result is the result of a case.
type result struct {
	Case   string             `json:"case"`
	Work   string             `json:"work"`
	Unit   string             `json:"unit"`
	Goal   string             `json:"goal"`
	Note   string             `json:"note,omitempty"`
	Values map[string]*values `json:"values"` // by proxy
	Met    bool               `json:"met"`
	more   string             // to print
}

// values are one proxy's.
type values struct {
	rig.Figures
	Requests int  `json:"requests,omitempty"`
	Failed   int  `json:"failed,omitempty"`
	Errors   bool `json:"socket_errors,omitempty"`
}

func (r *result) of(name string) *values {
	if r.Values == nil {
		r.Values = map[string]*values{}
	}
	if r.Values[name] == nil {
		r.Values[name] = &values{}
	}
	return r.Values[name]
}

func (r *result) add(name string, v float64) { o := r.of(name); o.All = append(o.All, v) }

func (r *result) sent(name string, s *rig.Result) {
	o := r.of(name)
	o.Requests, o.Failed, o.Errors = o.Requests+s.Requests, o.Failed+s.Failed, o.Errors || s.SocketErrors
}

// conclude takes the medians and the ratios to HAProxy.
func (r *result) conclude(met func(r *result) bool) {
	for _, v := range r.Values {
		var to []float64
		if first := r.Values[haproxy]; first != nil {
			to = first.All
		}
		v.Conclude(to)
	}
	r.Met = met(r)
}

func (r *result) ours() float64  { return r.of(ours).Median }
func (r *result) ratio() float64 { return r.of(ours).Ratio }

// belowNginx compares within the rounds too.
func (r *result) belowNginx() bool {
	f := rig.Figures{All: r.of(ours).All}
	f.Conclude(r.of(nginx).All)
	return f.Ratio < 1
}

func (r *result) failedShare() float64 {
	return float64(r.of(ours).Failed) / float64(max(r.of(ours).Requests, 1))
}

func (r *result) verdict() string {
	if r.Met {
		return "met"
	}
	return "missed"
}

// last describes the last round.
func (r *result) last() string {
	var parts []string
	for _, name := range []string{haproxy, nginx, ours} {
		if v := r.Values[name]; v != nil && len(v.All) > 0 {
			parts = append(parts, fmt.Sprintf("%s %.2f", name, v.All[len(v.All)-1]))
		}
	}
	return strings.Join(parts, ", ") + " " + r.Unit
}

// cell returns a proxy's cell of the table.
func (r *result) cell(name string) string {
	v := r.Values[name]
	if v == nil || len(v.All) == 0 {
		return "—"
	}
	text := fmt.Sprintf("%.1f", v.Median)
	if r.Unit == "x" {
		text = fmt.Sprintf("%.2f", v.Median)
	}
	if v.Ratio > 0 && name != haproxy {
		text += fmt.Sprintf(" (%.2f, %.2f to %.2f)", v.Ratio, v.Low, v.High)
	}
	if v.Failed > 0 {
		text += fmt.Sprintf(", %.4f %% failed", 100*float64(v.Failed)/float64(v.Requests))
	}
	if v.Errors {
		text += ", socket errors"
	}
	return text
}
