package main

import (
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/machine"
	"github.com/retryproxy/retryproxy/plot"
)

// document is everything that was measured. With its figure it can be drawn by
// retryproxy-plot.
type document struct {
	Args    []string     `json:"args"`
	Commit  string       `json:"commit"`
	Proxy   string       `json:"proxy"` // what retryproxy version says
	Machine string       `json:"machine"`
	Runs    []*runResult `json:"runs"`
	Figure  *plot.Figure `json:"figure"`
}

// runResult is a run and how it ended.
type runResult struct {
	Name    string   `json:"name"` // of the way it went
	Outage  string   `json:"outage"`
	Clients string   `json:"client_backoff"`
	Proxies int      `json:"proxies,omitempty"`
	Stopped float64  `json:"stopped_seconds"`
	Resumed float64  `json:"resumed_seconds"`
	Verdict verdict  `json:"verdict"`
	Virtual verdict  `json:"in_virtual_time"` // the same storm as policy/storm plays it
	Seconds []second `json:"seconds"`
	Ticks   []tick   `json:"ticks"` // of 100 ms
	Events  []event  `json:"events"`
	Samples []sample `json:"samples,omitempty"`
}

// second is what happened within one, with what the bad answers were.
type second struct {
	tick
	Kinds map[string]int `json:"bad_kinds,omitempty"`
}

func newRunResult(way string, s *stage, seed uint64) *runResult {
	r := &runResult{
		Name: way, Outage: s.o.outage, Clients: s.o.manner,
		Stopped: s.stopped.Seconds(), Resumed: s.resumed.Seconds(),
		Ticks: s.record.ticks, Events: s.record.events, Samples: s.record.proxy,
		Verdict: judge(s.record.ticks, s.stopped, s.resumed),
		Virtual: inVirtualTime(way, s.o, seed),
	}
	if way == "retryproxy" {
		r.Proxies = s.o.proxies
	}
	for i := range len(r.Ticks) / int(time.Second/tickTime) {
		at := time.Duration(i) * time.Second
		r.Seconds = append(r.Seconds, second{sum(r.Ticks, at, at+time.Second), s.record.kinds[i]})
	}
	return r
}

func newDocument(args []string, proxy string, runs []*runResult) *document {
	return &document{
		Args: args, Commit: machine.Commit(), Proxy: versionOf(proxy), Runs: runs, Figure: figure(runs),
		Machine: fmt.Sprintf("%s/%s, %d cores", runtime.GOOS, runtime.GOARCH, runtime.NumCPU()),
	}
}

// versionOf is what a program says that it is; "" when it cannot be asked.
func versionOf(program string) string {
	out, err := exec.Command(program, "version").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// table prints what happened in each second.
func (r *runResult) table(out io.Writer) {
	fmt.Fprintf(out, "%s, outage %s, clients %s\n", r.Name, r.Outage, r.Clients)
	fmt.Fprintln(out, "second  good   bad  late  server")
	for i, s := range r.Seconds {
		fmt.Fprintf(out, "%6d %5d %5d %5d %7d\n", i, s.Good, s.Bad, s.Late, s.AtOnce)
	}
}
