package main

import (
	"flag"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/command"
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
	return o, command.Parse(f, args, func() error {
		o.cases, o.peers = command.List(*chosen), command.List(*peers)
		return o.validate()
	})
}

// validate names everything that is out of range.
func (o *options) validate() error {
	var c command.Check
	for _, name := range o.cases {
		c.That(slices.Contains(caseNames(), name), "--cases: %q is none of %s", name, strings.Join(caseNames(), ", "))
	}
	for _, p := range o.peers {
		c.That(p == rig.HAProxy || p == rig.Nginx, "--peers: %q is neither %s nor %s", p, rig.HAProxy, rig.Nginx)
	}
	c.That(o.rounds >= 1 && o.rounds <= 1000, "--rounds must be in 1..1000")
	c.That(o.slice >= time.Second && o.slice <= time.Minute && o.slice%time.Second == 0, "--slice must be whole seconds from 1s to 1m")
	c.That(o.connections >= 1 && o.connections <= 8000, "--connections must be in 1..8000")
	c.That(o.waiting >= 1 && o.waiting <= 20_000, "--waiting must be in 1..20000")
	return c.Err()
}

func (o *options) wants(name string) bool { return len(o.cases) == 0 || slices.Contains(o.cases, name) }

// needs are the programs that have to be installed.
func (o *options) needs() []string { return append([]string{"wrk"}, o.peers...) }

// proxies are all that take part, retryproxy last.
func (o *options) proxies() []string { return append(slices.Clone(o.peers), rig.Retryproxy) }
