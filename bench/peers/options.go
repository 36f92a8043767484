package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// options are the arguments.
type options struct {
	cases       []string // empty: all
	peers       []string // besides retryproxy
	rounds      int
	slice       time.Duration
	connections int
	waiting     int
	proxy       string
	json        string
	strict      bool
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("peers", flag.ContinueOnError)
	f.SetOutput(stderr)
	chosen := f.String("cases", "", "only these, of "+strings.Join(caseNames(), ","))
	peers := f.String("peers", rig.HAProxy+","+rig.Nginx, "what retryproxy is compared with; ratios are to the first")
	f.IntVar(&o.rounds, "rounds", 7, "rounds, in each of which every proxy has its turn")
	f.DurationVar(&o.slice, "slice", time.Second, "length of a turn, in whole seconds")
	f.IntVar(&o.connections, "connections", 4000, "idle connections for their memory")
	f.IntVar(&o.waiting, "waiting", rig.AtMost(10_000), "requests in backoff for their memory")
	f.StringVar(&o.proxy, "proxy", "bin/retryproxy", "the program retryproxy")
	f.StringVar(&o.json, "json", "", "write everything that was measured to this file")
	f.BoolVar(&o.strict, "strict", false, "exit code 3 when a goal is missed")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	o.cases, o.peers = split(*chosen), split(*peers)
	return o, o.validate()
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

// validate names everything that is out of range.
func (o *options) validate() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for _, c := range o.cases {
		need(slices.Contains(caseNames(), c), "--cases: %q is none of %s", c, strings.Join(caseNames(), ", "))
	}
	for _, p := range o.peers {
		need(p == rig.HAProxy || p == rig.Nginx, "--peers: %q is neither %s nor %s", p, rig.HAProxy, rig.Nginx)
	}
	need(o.rounds >= 1 && o.rounds <= 1000, "--rounds must be in 1..1000")
	need(o.slice >= time.Second && o.slice <= time.Minute && o.slice%time.Second == 0, "--slice must be whole seconds from 1s to 1m")
	need(o.connections >= 1 && o.connections <= 8000, "--connections must be in 1..8000")
	need(o.waiting >= 1 && o.waiting <= 20_000, "--waiting must be in 1..20000")
	return errors.Join(errs...)
}

func (o *options) wants(name string) bool { return len(o.cases) == 0 || slices.Contains(o.cases, name) }

// needs are the programs that have to be installed.
func (o *options) needs() []string { return append([]string{"wrk"}, o.peers...) }

// proxies are all that take part, retryproxy last.
func (o *options) proxies() []string { return append(slices.Clone(o.peers), rig.Retryproxy) }
