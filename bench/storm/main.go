package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/draw"
	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

func main() { rig.Main("storm", run) }

// options are all the constants of a storm.
type options struct {
	draw.Files
	proxy, haproxy string   // programs
	through        []string // of ways, played one after the other
	outage         string   // one of outages
	manner         string   // one of manners
	runs           int      // of each way
	proxies        int      // processes of retryproxy, each with its share of the clients
	seed           uint64

	peace, down, after time.Duration

	clients     int
	every       time.Duration // mean of the exponential pause after a good response
	patience    time.Duration // each try is given up after this
	again, most time.Duration // pause before the next try; with backoff, the first and the longest one
	paths       int           // URLs that are asked for

	server   serverOptions
	maxconn  int           // of haproxy-tuned
	queueFor time.Duration // of haproxy-tuned
	abort    bool          // HAProxy forgets requests whose clients left
}

var (
	ways    = []string{"direct", "retryproxy", "haproxy-retry", "haproxy-tuned"}
	outages = []string{"stop", "kill", "503"}
	manners = []string{"naive", "backoff"}
)

// parse reads the arguments of a run.
func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := rig.NewFlags("storm", stderr, &o.proxy)
	o.Flags(f)
	f.StringVar(&o.haproxy, "haproxy", "haproxy", "the program haproxy")
	f.Some(&o.through, "through", "retryproxy", ways, "what stands between clients and server")
	f.One(&o.outage, "outage", "stop", outages, "what happens to the server")
	f.One(&o.manner, "client-backoff", "naive", manners, "what clients do after a failure: a constant pause, or an exponential one")
	rig.Number(f, &o.runs, "runs", 1, 1, 100, "runs of each way")
	rig.Number(f, &o.proxies, "proxies", 1, 1, 200, "processes of retryproxy, each with an equal share of the clients")
	f.Seed(&o.seed, 1)
	length := func(p *time.Duration, name string, value time.Duration, about string) {
		rig.Number(f, p, name, value, time.Millisecond, time.Hour, about)
	}
	length(&o.peace, "peace", 15*time.Second, "time before the outage")
	length(&o.down, "down", 40*time.Second, "length of the outage")
	length(&o.after, "after", 60*time.Second, "time after the outage")
	rig.Number(f, &o.clients, "clients", 1000, 1, 20_000, "clients, each with one request at a time")
	length(&o.every, "every", 10*time.Second, "mean of the exponential pause of a client after a good response")
	length(&o.patience, "patience", 2*time.Second, "time after which a try is given up")
	length(&o.again, "again", 100*time.Millisecond, "pause before the next try after one that failed")
	length(&o.most, "again-most", 10*time.Second, "backoff: the longest pause")
	rig.Number(f, &o.paths, "paths", 20, 1, 1000, "URLs that are asked for")
	rig.Number(f, &o.maxconn, "maxconn", 30, 1, 100_000, "haproxy-tuned: connections to the server")
	length(&o.queueFor, "timeout-queue", time.Second, "haproxy-tuned: longest wait for one of them")
	f.BoolVar(&o.abort, "abortonclose", false, "haproxy: option abortonclose, forget requests whose clients left")
	o.server.flags(f)
	return o, f.Parse(args)
}

// length is that of a run.
func (o *options) length() time.Duration { return o.peace + o.down + o.after }

func (o *options) crowd(seed uint64) *rig.Crowd {
	return &rig.Crowd{N: o.clients, Every: o.every, Patience: o.patience, Seed: seed, Again: o.pause, Path: func(i int) string { return fmt.Sprint("/work/", i%o.paths) }}
}

// pause is the time before the next try, after failed+1 in a row: constant, or uniform in
// [0, min(again*2^failed, most)].
func (o *options) pause(r *rand.Rand, failed int) time.Duration {
	if o.manner == "naive" {
		return o.again
	}
	d := o.again
	for ; failed > 0 && d < o.most; failed-- {
		d *= 2
	}
	return time.Duration(r.Int64N(int64(min(d, o.most)) + 1))
}

// run plays all runs that were asked for.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	d := &document{Document: rig.NewDocument(args, rig.Version(o.proxy, "version"))}
	told := rig.NewProgress(stderr)
	for n := range o.runs {
		for _, way := range o.through {
			r, err := play(ctx, way, o, o.seed+uint64(n), told)
			if err != nil {
				return fmt.Errorf("%s: %w", way, err)
			}
			told.End()
			r.tell(stdout)
			d.Runs = append(d.Runs, r)
		}
	}
	d.Figure = figure(d.Runs)
	return o.Write(d, d.Figure, pictureSize)
}
