package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/command"
	"github.com/retryproxy/retryproxy/bench/internal/show"
)

// options are the flags.
type options struct {
	proxy string
	lasts time.Duration
	cases int
	seed  uint64
	json  bool
}

func main() {
	command.Main("twoparsers", run)
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("twoparsers", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.proxy, "proxy", "bin/retryproxy", "the program to test")
	f.DurationVar(&o.lasts, "for", time.Minute, "how long requests are made")
	f.IntVar(&o.cases, "cases", 0, "how many clients' streams are made instead; 0: as many as --for allows")
	f.Uint64Var(&o.seed, "seed", 0, "what the streams follow from; 0: a new one")
	f.BoolVar(&o.json, "json", false, "print the result as JSON")
	err := command.Parse(f, args, o.validate)
	for o.seed == 0 {
		o.seed = rand.Uint64() >> 32
	}
	return o, err
}

func (o *options) validate() error {
	switch {
	case o.lasts <= 0 || o.lasts > 24*time.Hour:
		return errors.New("--for must be positive and at most 24h")
	case o.cases < 0:
		return errors.New("--cases must not be negative")
	}
	return nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	r, err := o.check(ctx, show.NewProgress(stderr))
	if err != nil {
		return err
	}
	r.print(stdout, o.json)
	if r.Violations > 0 {
		return command.ErrFound
	}
	return nil
}

// batch is how many streams are sent before what came of them is looked at.
const batch = 256

// check makes streams until the time is over, or as many as wanted.
func (o *options) check(ctx context.Context, p *show.Progress) (*report, error) {
	s, err := startStage(o.proxy)
	if err != nil {
		return nil, err
	}
	defer s.end()
	r := newReport(o.seed)
	table := usable()
	told := time.Now()
	for end := time.Now().Add(o.lasts); ctx.Err() == nil && (o.cases == 0 && time.Now().Before(end) || r.Streams < o.cases); {
		n := batch
		if o.cases > 0 {
			n = min(n, o.cases-r.Streams)
		}
		from := r.Streams
		side(64, n, func(i int) { send(s.proxyAddr, generate(o.seed, uint64(from+i), table)) })
		r.Streams += n
		if !s.alive() {
			return nil, errors.New("a program ended: " + s.lines())
		}
		kept := s.recorder.flush()
		side(8, len(kept), func(i int) { s.compare(r, kept[i]) })
		if time.Since(told) > time.Second {
			told = time.Now()
			p.Line(fmt.Sprintf("%d streams sent, %d connections upstream, %d requests read alike, %d violations", r.Streams, r.Connections, r.Requests, r.Violations))
		}
	}
	p.End()
	if r.Requests == 0 {
		return nil, errors.New("nothing reached the upstream")
	}
	return r, nil
}

// side calls f with 0 to n-1, so many at a time.
func side(at, n int, f func(i int)) {
	var all sync.WaitGroup
	room := make(chan struct{}, at)
	for i := range n {
		room <- struct{}{}
		all.Go(func() { defer func() { <-room }(); f(i) })
	}
	all.Wait()
}

// report is what came of it. Its methods are safe for concurrent use.
type report struct {
	mu sync.Mutex

	Seed        uint64         `json:"seed"`
	Streams     int            `json:"streams"`     // clients' connections
	Connections int            `json:"connections"` // the proxy's, each shown to all three
	Requests    int            `json:"requests"`    // whole ones among the bytes of these
	Cut         int            `json:"cut"`         // connections that ended within a request
	Known       map[string]int `json:"known"`       // differences that a rule explains
	Violations  int            `json:"violations"`
	Told        []string       `json:"told"` // the first violations
}

func newReport(seed uint64) *report { return &report{Seed: seed, Known: map[string]int{}} }

// mostTold bounds the violations told in full.
const mostTold = 10

func (r *report) violation(format string, a ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Violations++
	if len(r.Told) < mostTold {
		r.Told = append(r.Told, fmt.Sprintf(format, a...))
	}
}

func (r *report) known(rule string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Known[rule]++
}

func (r *report) print(w io.Writer, asJSON bool) {
	if asJSON {
		_ = json.NewEncoder(w).Encode(r)
		return
	}
	fmt.Fprintf(w, "seed %d: %d streams, %d connections upstream, %d requests on them, %d cut off in one; %d violations\n", r.Seed, r.Streams, r.Connections, r.Requests, r.Cut, r.Violations)
	for _, k := range rules {
		if n := r.Known[k.name()]; n > 0 {
			fmt.Fprintf(w, "  %6d %s: %s\n", n, k.name(), k.why)
		}
	}
	for _, v := range r.Told {
		fmt.Fprintln(w, v)
	}
}
