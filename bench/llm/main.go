// Command llm checks the promises of RETRYPROXY_PROFILE=llm with the vendors' own Go clients, openai-go and
// anthropic-sdk-go.
//
//	make bench-llm
//	cd bench/llm && go run . --proxy ../../bin/retryproxy --through direct,retryproxy
//
// A fake provider (provider.go) speaks the APIs of OpenAI and Anthropic. It has rate limits for requests
// and tokens, and it fails on purpose. It knows what it sent and asked for, so it judges each row:
//
//   - early: requests that came before the end of the wait that the provider asked for. If it asks for two
//     waits, such as the 700 ms and 1 s of OpenAI's headers, the shorter counts
//   - billed twice: jobs for which more than one generation was completed
//   - futile: requests of a job after the provider had said that the account is used up
//   - failed: jobs that failed for the client before their first content, other than by a cut
//   - changed: responses that differ from what was sent
//   - 429s: responses of the rate limits; those of faults do not count
//   - token limit used: the share that was used while jobs came
//
// retryproxy learns the rate limits (RETRYPROXY_RATE_LIMIT=auto), as one process and as a fleet of 50 that
// share through a redis-server.
//
// A job whose response was lost after its generation was billed has a column of its own. It does not count
// as failed, because a retry could be billed again.
//
// The program is a module of its own. Otherwise its clients would add the modules of Azure, AWS and some
// twenty others to the module graph of cmd/retryproxy. After a change of the other go.mod, "go mod tidy" may
// be due here.
//
// HAProxy retries what it can without the risk of a second bill. Added latency is the median difference
// between pairs of streams, one of them direct.
//
// A minute of the vendors' limits is a second here, and a generation of ten seconds takes a sixth of one.
// Everything is on loopback.
//
// Exit codes: 0 the rows of retryproxy keep every promise; 1 one does not, or a row could not be played;
// 2 wrong arguments.
package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

func main() { rig.Main("llm", run) }

// options are the flags and constants.
type options struct {
	schedule
	proxy                    string
	through                  []string
	load                     time.Duration
	rate                     float64 // jobs a second for each row: about the token limit, and twice that in bursts
	requestLimit, tokenLimit float64 // of the provider, a second; also its burst
	pairs                    int     // of streams for the added latency
	processes                int     // that share through Redis, for fleet
	json                     string
	short                    bool
	set                      []string // settings of the proxy
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{
		schedule: schedule{errors: 0.05, median: 170 * time.Millisecond, sigma: 0.8},
		rate:     27, requestLimit: 40, tokenLimit: 8000, pairs: 100, processes: 50,
	}
	f := rig.NewFlags("llm", stderr, &o.proxy)
	f.Some(&o.through, "through", installed(), []string{direct, haproxy, retryproxy, fleet}, "the ways to the provider")
	rig.Number(f, &o.load, "load", 30*time.Second, time.Second, time.Hour, "how long jobs come")
	f.Seed(&o.seed, 1)
	f.StringVar(&o.json, "json", "", "write everything that was measured to this file")
	f.BoolVar(&o.short, "short", false, "3 s of load and 10 pairs; faults that did not happen are no error")
	f.Settings(&o.set, "RETRYPROXY_RETRY_METHODS=any")
	f.Check(func(c *rig.Check) {
		c.That(len(o.through) > 0, "--through is empty")
		if o.short {
			o.load, o.pairs = 3*time.Second, 10
		}
		for way, program := range map[string]string{haproxy: haproxy, fleet: "redis-server"} {
			if slices.Contains(o.through, way) {
				c.Installed(program)
			}
		}
	})
	return o, f.Parse(args)
}

// installed returns the ways that this machine can play, except fleet, which takes much of a machine.
func installed() string {
	if _, err := exec.LookPath(haproxy); err != nil {
		return direct + "," + retryproxy
	}
	return direct + "," + haproxy + "," + retryproxy
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	return o.run(ctx, args, stdout, stderr)
}

func (o *options) run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	if o.proxy, err = filepath.Abs(o.proxy); err != nil {
		return err
	}
	d := newDocument(o, args)
	if d.Rows, err = o.playAll(ctx, o.ways(), stderr); err != nil {
		return err
	}
	d.print(stdout)
	if err := rig.WriteJSON(o.json, d); err != nil {
		return err
	}
	for _, r := range d.Rows {
		for _, b := range r.broken() {
			fmt.Fprintf(stderr, "llm: %s: %s\n", r.title(), b)
			err = rig.ErrFound
		}
	}
	return err
}

// playAll plays a row for each client, with its retries on and off, and each way. It measures latency first,
// one row at a time. Then the load of all rows of a way comes at once. The buckets hold a second's worth,
// so a machine that is late by part of a second shows in them.
func (o *options) playAll(ctx context.Context, ways []way, stderr io.Writer) ([]*row, error) {
	var b rig.Bed
	defer b.End()
	var all []*play
	for client := range vendors {
		for _, retries := range []int{defaultRetries, 0} {
			for _, w := range ways {
				if w.once && retries == 0 {
					continue
				}
				p, err := setUp(ctx, &b, o, client, retries, w)
				if err != nil {
					return nil, err
				}
				all = append(all, p)
			}
		}
	}
	fmt.Fprintf(stderr, "llm: latency, %d pairs a row\n", o.pairs)
	for _, p := range all {
		if err := p.compareLatency(ctx); err != nil {
			return nil, err
		}
	}
	for _, w := range ways {
		fmt.Fprintf(stderr, "llm: load through %s for %v\n", w.name, o.load)
		var wait sync.WaitGroup
		for _, p := range all {
			if p.Through == w.name {
				wait.Go(func() { p.load(ctx) })
			}
		}
		wait.Wait()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	rows := make([]*row, len(all))
	for i, p := range all {
		rows[i] = p.conclude()
	}
	return rows, nil
}

// row is the result of one client by one way.
type row struct {
	Client  string `json:"client"`
	Retries bool   `json:"client_retries"`
	Through string `json:"through"`

	Jobs     int     `json:"jobs"`
	Good     int     `json:"good"`
	Failed   int     `json:"failed_before_content"` // though it could have been repeated
	Lost     int     `json:"lost"`                  // billed, and then cut off before the first content
	CutAfter int     `json:"cut_after_content"`
	Refused  int     `json:"account_used_up"`
	Seconds  float64 `json:"seconds"`

	Requests   int     `json:"requests"`
	Limited    int     `json:"responses_429_of_a_rate_limit"`
	Early      int     `json:"early"`
	Futile     int     `json:"futile"`
	Twice      int     `json:"billed_twice"`
	Changed    int     `json:"changed"`
	Compared   int     `json:"compared"`         // bodies that were looked at
	TokenShare float64 `json:"token_limit_used"` // of what the limit allowed in the time of the load

	AddedLatency *float64       `json:"added_latency_us"` // until the first content, median of the pairs; nil for direct
	Faults       map[string]int `json:"faults"`
	Failures     []string       `json:"failures,omitempty"` // a few

	judged, short, paced bool
}

func (r *row) title() string {
	retries := "without retries"
	if r.Retries {
		retries = "with retries"
	}
	return r.Client + " " + retries + ", " + r.Through
}

// The bounds of a row that must use the rate limits.
const (
	most429s      = 0.01
	leastUsed     = 0.97
	mostLatencyUS = 1000
)

// broken returns the promises that the row breaks, and what it cannot prove.
func (r *row) broken() []string {
	if !r.judged {
		return nil
	}
	var c rig.Check
	c.That(r.Early == 0, "%d requests came earlier than the provider asked for", r.Early)
	c.That(r.Twice == 0, "%d jobs were billed twice", r.Twice)
	c.That(r.Futile == 0, "%d requests came after the account was used up", r.Futile)
	c.That(r.Failed == 0, "%d jobs failed before their first content: %s", r.Failed, strings.Join(r.Failures, "; "))
	c.That(r.Changed == 0, "%d responses were changed", r.Changed)
	c.That(r.Compared >= r.Good, "nothing is proved about %d good responses, as they do not say which they are", r.Good-r.Compared)
	if r.short {
		return c.All()
	}
	for name, n := range r.Faults {
		c.That(n > 0, "nothing is proved about this fault, as it did not happen: %s", name)
	}
	if !r.paced {
		c.That(r.Limited > 0, "nothing is proved about rate limits: there was no 429")
		return c.All()
	}
	c.That(r.share429() < most429s, "%.1f %% of the responses were 429s of a rate limit", 100*r.share429())
	c.That(r.TokenShare >= leastUsed, "%.1f %% of the token limit were used", 100*r.TokenShare)
	if r.AddedLatency != nil {
		c.That(*r.AddedLatency <= mostLatencyUS, "%.2f ms were added to the first content", *r.AddedLatency/1000)
	}
	return c.All()
}

// share429 returns the share of responses that were 429s of a rate limit.
func (r *row) share429() float64 { return float64(r.Limited) / float64(max(r.Requests, 1)) }

const header = "| client | its retries | through | jobs | early | billed twice | futile | failed before content | lost after the bill | changed | 429s | token limit used | added to first content |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"

func (r *row) print(w io.Writer) {
	retries := "off"
	if r.Retries {
		retries = "on"
	}
	latency := "—"
	if r.AddedLatency != nil {
		latency = fmt.Sprintf("%.2f ms", *r.AddedLatency/1000)
	}
	fmt.Fprintf(w, "| %s | %s | %s | %d | %d | %d | %d | %d | %d | %d | %.1f %% | %.1f %% | %s |\n", r.Client, retries, r.Through, r.Jobs,
		r.Early, r.Twice, r.Futile, r.Failed, r.Lost, r.Changed, 100*r.share429(), 100*r.TokenShare, latency)
}

// document is everything that was measured.
type document struct {
	rig.Document
	Rows []*row `json:"rows"`
}

func newDocument(o *options, args []string) *document {
	programs := []string{rig.Version(o.proxy, "version")}
	if slices.Contains(o.through, haproxy) {
		programs = append(programs, rig.Version(haproxy, "-v"))
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if strings.HasPrefix(m.Path, "github.com/openai/") || strings.HasPrefix(m.Path, "github.com/anthropics/") {
				programs = append(programs, m.Path+" "+m.Version)
			}
		}
	}
	return &document{Document: rig.NewDocument(args, programs...)}
}

// print writes the table.
func (d *document) print(w io.Writer) {
	d.Head(w)
	fmt.Fprintf(w, "\n%s", header)
	for _, r := range d.Rows {
		r.print(w)
	}
}
