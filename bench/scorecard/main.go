// Command scorecard judges the circuit breaker and the concurrency limit: what do they do for clients, and
// where do they do harm?
//
//	go run ./bench/scorecard --proxy bin/retryproxy --json scorecard.json --docs bench/scorecard/table.md
//
// It plays each row of a table (rows.go and its neighbors) with real processes, in four arms at the same
// time: direct, through HAProxy, through retryproxy with its defaults (on), and through retryproxy with
// breaker and limit off. Each arm has its own servers (package overload) and clients.
//
// A row says what the servers are, who asks, and what goes wrong when. It has goals, and one goal is in
// every row: no more requests are lost with the breaker than without it.
//
// Exit codes: 0 all goals were met; 1 a row could not be played; 2 wrong arguments; 3 a goal was missed.
// With --short no goal is judged.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

func main() { rig.Main("scorecard", run) }

// The arms of a row.
const (
	direct  = "direct"
	haproxy = "haproxy"
	on      = "on"
	off     = "off"
)

var arms = []string{direct, haproxy, on, off}

// options are the flags.
type options struct {
	proxy, json, docs string
	only              []string // parts of names of rows
	arms              []string
	read              []string // files of earlier runs
	set               []string // settings of both arms of retryproxy
	short             bool
	list              bool
	seed              uint64

	// start starts a proxy of an arm; nil means the real ones. Tests set it to broken proxies.
	start func(s *stage) (addrs []string, err error)
}

// parse reads the arguments.
func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := rig.NewFlags("scorecard", stderr, &o.proxy)
	only := f.String("only", "", "rows whose names contain one of these texts, separated by commas")
	f.Some(&o.arms, "arms", strings.Join(arms, ","), arms, "what stands between clients and servers")
	read := f.String("read", "", "files of --json, separated by commas, to be judged instead of playing")
	f.StringVar(&o.json, "json", "", "file for all that was measured")
	f.StringVar(&o.docs, "docs", "", "page whose table is replaced if all rows are there in all arms")
	f.Settings(&o.set, "RETRYPROXY_MAX_RETRIES=0")
	f.BoolVar(&o.short, "short", false, "a tenth of the time and no goals, to see that it runs")
	f.BoolVar(&o.list, "list", false, "print the names of the rows")
	f.Seed(&o.seed, 1)
	f.Check(func(c *rig.Check) {
		if *only != "" {
			o.only = strings.Split(*only, ",")
		}
		if *read != "" {
			o.read = strings.Split(*read, ",")
		}
		c.That(len(o.rows()) > 0, "--only %s: no such row", *only)
		if slices.Contains(o.arms, haproxy) && !o.list && len(o.read) == 0 {
			c.Installed("haproxy")
		}
	})
	return o, f.Parse(args)
}

// rows returns the rows to play.
func (o *options) rows() (some []*row) {
	for _, r := range rows() {
		if len(o.only) == 0 || slices.ContainsFunc(o.only, func(part string) bool { return strings.Contains(r.name, part) }) {
			some = append(some, r)
		}
	}
	return some
}

// run plays the rows and judges them.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	some := o.rows()
	if o.list {
		for _, r := range some {
			fmt.Fprintln(stdout, r.name)
		}
		return nil
	}
	d := &document{}
	if len(o.read) > 0 {
		err = d.read(o.read, some, stdout)
	} else {
		d.Document = rig.NewDocument(args, rig.Version(o.proxy, "version"), rig.Version("haproxy", "-v"))
		err = d.play(ctx, o, some, stdout)
	}
	if err != nil {
		return err
	}
	missed := d.missed()
	fmt.Fprintf(stdout, "%d rows in %.0f s; %d of %d goals missed\n", len(d.Rows), d.Seconds, missed, d.goals())
	if !d.complete() {
		o.docs = ""
	}
	if err := errors.Join(rig.WriteJSON(o.json, d), d.writeDocs(o.docs)); err != nil {
		return err
	}
	if missed > 0 {
		return rig.ErrMissed
	}
	return nil
}

// play plays rows and prints each when its group has ended.
func (d *document) play(ctx context.Context, o *options, some []*row, stdout io.Writer) error {
	began := time.Now()
	for _, together := range groups(some) {
		results, err := o.play(ctx, together)
		for _, r := range results {
			r.print(stdout)
			d.Rows = append(d.Rows, r)
		}
		if err != nil {
			return err
		}
	}
	d.Seconds = time.Since(began).Seconds()
	return nil
}

// mostWeight is how much is played at the same time.
const mostWeight = 150

// groups splits rows into those that are played at the same time, in their order.
func groups(all []*row) (groups [][]*row) {
	weight := mostWeight
	for _, r := range all {
		if weight+r.weight() > mostWeight {
			groups, weight = append(groups, nil), 0
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], r)
		weight += r.weight()
	}
	return groups
}

// play plays rows at the same time, each in all arms. A row that could not be played is left out.
func (o *options) play(ctx context.Context, some []*row) (results []*result, err error) {
	results = make([]*result, len(some))
	errs := make([]error, len(some))
	var all sync.WaitGroup
	for i, r := range some {
		all.Go(func() { results[i], errs[i] = o.playRow(ctx, r) })
	}
	all.Wait()
	return slices.DeleteFunc(results, func(r *result) bool { return r == nil }), errors.Join(errs...)
}

// playRow plays a row in all arms.
func (o *options) playRow(ctx context.Context, r *row) (*result, error) {
	ctx, cancel := context.WithTimeout(ctx, r.length()+time.Minute)
	defer cancel()
	got := &result{row: r, Name: r.name, How: r.how, Arms: map[string]*measures{}}
	all, errs := make([]*measures, len(o.arms)), make([]error, len(o.arms))
	rig.Parallel(len(o.arms), len(o.arms), func(i int) { all[i], errs[i] = play(ctx, r, o.arms[i], o) })
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%s: %w", r.name, err)
	}
	for i, arm := range o.arms {
		got.Arms[arm] = all[i]
	}
	if !o.short {
		got.judge()
	}
	return got, nil
}
