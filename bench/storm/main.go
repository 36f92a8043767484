// Command storm plays an outage with real processes: a server that becomes slow with many concurrent
// requests, a thousand clients that try again and again, and a proxy between them.
//
//	go run ./bench/storm --through direct,haproxy-retry,haproxy-tuned,retryproxy --proxy bin/retryproxy --png storm.png
//
// The server (package overload) is a separate process. A response takes 100 ms for up to 30 concurrent requests, and
// 100 ms x 1.05^((c-30)/15) for c requests above that, updated every 50 ms. The server does not notice that a
// client has left, so abandoned requests count until they are done. After a time of peace the server is
// stopped with SIGSTOP, or killed, or responds with 503 to everything. Later it recovers. The clients are in
// this process. Each sends at exponential intervals, gives up after its patience, and tries again after a
// short pause until it gets a 200.
//
// The report has the counts of each second: good responses (200 in time), bad ones (other responses and
// failed connections), late ones (given up), and the maximum of concurrent requests at the server. Then it
// has the time until the 5 s mean of good responses is back at 95 % of peace, the time until errors stay
// below 5 %, and the peak at the server. Package sim plays the same storm in virtual time; its verdict is
// beside the live one.
//
// Exit codes: 0 all runs were played, whatever their results; 1 one could not be; 2 wrong arguments.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/draw"
	"github.com/retryproxy/retryproxy/bench/internal/rig"
	"github.com/retryproxy/retryproxy/ctl/sim"
	"github.com/retryproxy/retryproxy/policy/backoff"
)

func main() { rig.Main("storm", run) }

// options are the flags, and the storm that follows from them.
type options struct {
	draw.Files
	proxy         string   // program
	through       []string // of ways, played one after the other
	outage        string   // one of outages
	clientBackoff string   // one of clientBackoffs
	abort         bool     // HAProxy drops requests whose clients left
	storm         sim.Config
}

var (
	ways           = []string{"direct", "retryproxy", "haproxy-retry", "haproxy-tuned"}
	outages        = []string{"stop", "kill", "503"}
	clientBackoffs = []string{"naive", "backoff"}
)

// parse reads the arguments of a run.
func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{storm: sim.Default()}
	short := false
	f := rig.NewFlags("storm", stderr, &o.proxy)
	o.Flags(f)
	f.Some(&o.through, "through", "retryproxy", ways, "what stands between clients and server")
	f.One(&o.outage, "outage", "stop", outages, "what happens to the server")
	f.One(&o.clientBackoff, "client-backoff", "naive", clientBackoffs, "what clients do after a failure: a constant pause, or an exponential one of at most 10 s")
	rig.Number(f, &o.storm.Proxies, "proxies", 1, 1, 200, "processes of retryproxy, each with an equal share of the clients")
	f.Seed(&o.storm.Seed, 1)
	f.BoolVar(&o.abort, "abortonclose", false, "haproxy: option abortonclose, drop requests whose clients left")
	f.BoolVar(&short, "short", false, "a storm of three seconds with twenty clients, to see that it runs")
	f.Check(func(*rig.Check) {
		c := &o.storm
		c.Faults[0].Kind = map[string]sim.FaultKind{"stop": sim.Stop, "kill": sim.Kill, "503": sim.Reject}[o.outage]
		if short {
			c.Length, c.Faults[0].At, c.Faults[0].For = 3*time.Second, time.Second, time.Second
			c.Clients = sim.Clients{N: 20, Every: 200 * time.Millisecond, Patience: 300 * time.Millisecond, RetryAfter: 20 * time.Millisecond}
			c.Server.Base, c.Server.Look = 10*time.Millisecond, 10*time.Millisecond
		}
		if o.clientBackoff == "backoff" {
			c.Clients.Backoff, _ = backoff.New("full-jitter", backoff.Options{Base: c.Clients.RetryAfter, Max: 10 * time.Second})
		}
	})
	return o, f.Parse(args)
}

// outageAt returns when the outage begins and ends.
func (o *options) outageAt() (begin, end time.Duration) {
	f := o.storm.Faults[0]
	return f.At, f.At + f.For
}

func (o *options) crowd() *rig.Crowd {
	c := o.storm.Clients
	return &rig.Crowd{N: c.N, Every: c.Every, Patience: c.Patience, Seed: o.storm.Seed, Again: o.pause, Path: func(i int) string { return fmt.Sprint("/work/", i%20) }}
}

// pause returns the wait before the next try, after failed+1 failures in a row.
func (o *options) pause(r *rand.Rand, failed int) time.Duration {
	if b := o.storm.Clients.Backoff; b != nil {
		return b.Wait(backoff.Step{Retry: failed}, r)
	}
	return o.storm.Clients.RetryAfter
}

// run plays the runs.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	d := &document{Document: rig.NewDocument(args, rig.Version(o.proxy, "version"))}
	progress := log.New(stderr, "", 0)
	for _, way := range o.through {
		r, err := play(ctx, way, o, progress)
		if err != nil {
			return fmt.Errorf("%s: %w", way, err)
		}
		r.print(stdout)
		d.Runs = append(d.Runs, r)
	}
	d.Figure = figure(d.Runs)
	return o.Write(d, d.Figure, pictureSize)
}

// inVirtualTime plays the same storm with package sim, without network, kernel and scheduler. It leaves out
// HAProxy's own retries.
func inVirtualTime(way string, o *options) verdict {
	c := o.storm
	switch way {
	case "retryproxy":
		c.Via = sim.ViaProxy
	case "haproxy-tuned":
		c.Via = sim.ViaSlots
	}
	begin, end := o.outageAt()
	return judge(sim.Run(c), begin, end)
}
