package main

import (
	"errors"
	"flag"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/command"
)

// options are all the constants of a storm.
type options struct {
	through  []string // each one of ways, played one after the other
	outage   string   // one of outages
	manner   string   // one of manners
	runs     int      // of each way
	proxies  int      // processes of retryproxy, each with its share of the clients
	proxy    string   // the program
	haproxy  string   // the program
	seed     uint64
	json     string
	png      string
	sample   time.Duration // between two looks at the proxies' metrics
	peace    time.Duration
	down     time.Duration
	after    time.Duration
	clients  clientOptions
	server   serverOptions
	maxconn  int           // of haproxy-tuned
	queueFor time.Duration // of haproxy-tuned
	abort    bool          // HAProxy forgets requests whose clients left
}

// clientOptions are the manners of all clients.
type clientOptions struct {
	n        int
	every    time.Duration // mean of the exponential pause after a good response
	patience time.Duration // each try is given up after this
	again    time.Duration // pause before the next try; with backoff, before the first one
	most     time.Duration // with backoff: the longest pause
	backoff  bool          // pauses double and are drawn from [0, pause]
	paths    int           // URLs that are asked for
}

var (
	ways    = []string{"direct", "retryproxy", "haproxy-retry", "haproxy-tuned"}
	outages = []string{"stop", "kill", "503"}
	manners = []string{"naive", "backoff"}
)

// parse reads the arguments of a run; flag.ErrHelp when help was printed.
func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("storm", flag.ContinueOnError)
	f.SetOutput(stderr)
	through := f.String("through", "retryproxy", "what stands between clients and server, one or several of "+strings.Join(ways, ","))
	f.StringVar(&o.outage, "outage", "stop", "what happens to the server: "+strings.Join(outages, ", "))
	f.StringVar(&o.manner, "client-backoff", "naive", "what clients do after a failure: naive (a constant pause) or backoff (exponential)")
	f.IntVar(&o.runs, "runs", 1, "runs of each way")
	f.IntVar(&o.proxies, "proxies", 1, "processes of retryproxy, each with an equal share of the clients")
	f.StringVar(&o.proxy, "proxy", "bin/retryproxy", "the program retryproxy")
	f.StringVar(&o.haproxy, "haproxy", "haproxy", "the program haproxy")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the clients' pauses")
	f.StringVar(&o.json, "json", "", "write everything that was measured to this file")
	f.StringVar(&o.png, "png", "", "draw the runs over each other into this file")
	f.DurationVar(&o.sample, "sample", time.Second, "time between two looks at the metrics of retryproxy")
	f.DurationVar(&o.peace, "peace", 15*time.Second, "time before the outage")
	f.DurationVar(&o.down, "down", 40*time.Second, "length of the outage")
	f.DurationVar(&o.after, "after", 60*time.Second, "time after the outage")
	f.IntVar(&o.maxconn, "maxconn", 30, "haproxy-tuned: connections to the server")
	f.DurationVar(&o.queueFor, "timeout-queue", time.Second, "haproxy-tuned: longest wait for one of them")
	f.BoolVar(&o.abort, "abortonclose", false, "haproxy: option abortonclose, forget requests whose clients left")
	o.clients.flags(f)
	o.server.flags(f)
	return o, command.Parse(f, args, func() error {
		o.through = strings.Split(*through, ",")
		o.clients.backoff = o.manner == "backoff"
		return o.validate()
	})
}

func (c *clientOptions) flags(f *flag.FlagSet) {
	f.IntVar(&c.n, "clients", 1000, "clients, each with one request at a time")
	f.DurationVar(&c.every, "every", 10*time.Second, "mean of the exponential pause of a client after a good response")
	f.DurationVar(&c.patience, "patience", 2*time.Second, "time after which a try is given up")
	f.DurationVar(&c.again, "again", 100*time.Millisecond, "pause before the next try after one that failed")
	f.DurationVar(&c.most, "again-most", 10*time.Second, "backoff: the longest pause")
	f.IntVar(&c.paths, "paths", 20, "URLs that are asked for")
}

// validate names everything that is out of range.
func (o *options) validate() error {
	var c command.Check
	for _, w := range o.through {
		c.That(slices.Contains(ways, w), "--through: %q is none of %s", w, strings.Join(ways, ", "))
	}
	c.That(slices.Contains(outages, o.outage), "--outage: %q is none of %s", o.outage, strings.Join(outages, ", "))
	c.That(slices.Contains(manners, o.manner), "--client-backoff: %q is none of %s", o.manner, strings.Join(manners, ", "))
	c.That(o.runs >= 1 && o.runs <= 100, "--runs must be in 1..100")
	c.That(o.proxies >= 1 && o.proxies <= 200, "--proxies must be in 1..200")
	c.That(o.clients.n >= 1 && o.clients.n <= 20_000, "--clients must be in 1..20000")
	c.That(o.clients.paths >= 1, "--paths must be positive")
	c.That(o.maxconn >= 1, "--maxconn must be positive")
	for name, d := range map[string]time.Duration{
		"sample": o.sample, "peace": o.peace, "down": o.down, "after": o.after, "timeout-queue": o.queueFor,
		"every": o.clients.every, "patience": o.clients.patience, "again": o.clients.again, "again-most": o.clients.most,
	} {
		c.That(d >= time.Millisecond && d <= time.Hour, "--%s must be from 1ms to 1h", name)
	}
	return errors.Join(c.Err(), o.server.validate())
}

// length is that of a run.
func (o *options) length() time.Duration { return o.peace + o.down + o.after }
