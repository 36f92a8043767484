package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// Load is work for wrk.
type Load struct {
	URL         string
	Connections int
	For         time.Duration // whole seconds
	Method      string        // "" = GET
	BodyBytes   int
	Headers     int  // request headers of 40 bytes besides the usual ones
	Distinct    bool // no two requests have the same query and X-Trace-Id
	Cores       []int
}

// Result is what wrk saw.
type Result struct {
	Requests     int
	Failed       int // responses other than 2xx and 3xx
	SocketErrors bool
	P50          time.Duration
}

// script sets method and body; wrk has no flags for them.
const script = `wrk.method = %q
if %d > 0 then wrk.body = string.rep("x", %[2]d); wrk.headers["Content-Type"] = "application/octet-stream" end
for i = 1, %[3]d do wrk.headers[string.format("X-Field-%%04d", i)] = "abcdefghijklmnopqrstuvwx" end
if %[4]t then
  local n = 0
  request = function()
    n = n + 1
    wrk.headers["X-Trace-Id"] = string.format("%%016x", n)
    return wrk.format(nil, wrk.path .. "?item=" .. n)
  end
end
`

// Send runs wrk once.
func (l *Load) Send(ctx context.Context) (*Result, error) {
	method := l.Method
	if method == "" {
		method = "GET"
	}
	var b Bed
	defer b.End()
	dir, err := b.TempDir()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(dir+"/load.lua", fmt.Appendf(nil, script, method, l.BodyBytes, l.Headers, l.Distinct), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "wrk", "-t1", "-c"+strconv.Itoa(l.Connections), "-d"+strconv.Itoa(max(1, int(l.For/time.Second)))+"s",
		"--timeout", "60s", "--latency", "-s", dir+"/load.lua", l.URL)
	var out []byte
	if err := pinned(l.Cores, func() (err error) { out, err = cmd.CombinedOutput(); return err }); err != nil {
		return nil, fmt.Errorf("wrk: %w: %s", err, out)
	}
	return parseWrk(out)
}

var (
	wrkRequests = regexp.MustCompile(`(\d+) requests in`)
	wrkFailed   = regexp.MustCompile(`Non-2xx or 3xx responses: (\d+)`)
	wrkErrors   = regexp.MustCompile(`Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)`)
	wrkP50      = regexp.MustCompile(`\s50%\s+([\d.]+(us|ms|s|m))`)
)

func parseWrk(out []byte) (*Result, error) {
	m := wrkRequests.FindSubmatch(out)
	if m == nil {
		return nil, fmt.Errorf("wrk printed nothing that is understood: %s", out)
	}
	r := &Result{SocketErrors: wrkErrors.Match(out)}
	r.Requests, _ = strconv.Atoi(string(m[1]))
	if m := wrkFailed.FindSubmatch(out); m != nil {
		r.Failed, _ = strconv.Atoi(string(m[1]))
	}
	if m := wrkP50.FindSubmatch(out); m != nil {
		r.P50, _ = time.ParseDuration(string(m[1]))
	}
	return r, nil
}

// Cost sends load, which must go to p, and returns the CPU time of p for each request in
// microseconds, with what was sent.
func (p *Proxy) Cost(ctx context.Context, load *Load) (float64, *Result, error) {
	before, err := p.CPU()
	if err != nil {
		return 0, nil, errors.Join(err, p.Alive())
	}
	sent, err := load.Send(ctx)
	if err != nil {
		return 0, nil, err
	}
	after, err := p.CPU()
	if err == nil && sent.Requests == 0 {
		err = errors.New("no request was answered")
	}
	if err = errors.Join(err, p.Alive()); err != nil {
		return 0, nil, err
	}
	return (after - before).Seconds() * 1e6 / float64(sent.Requests), sent, nil
}

// Division is which cores are whose.
type Division struct {
	One  []int // a proxy on one core
	Two  []int // a proxy on two, if there are two
	Load []int // upstream and wrk
	// Beside: the load has cores of its own also beside a proxy on two.
	Beside bool
}

// Divide gives the proxy the first cores that this process may use, and the load the others.
func Divide() Division {
	all := Cores()
	d := Division{One: all[:1], Two: all[:min(2, len(all))], Load: all, Beside: len(all) >= 4}
	if len(all) > 1 {
		d.Load = all[1:]
	}
	return d
}

// Median is the middle of all, or the mean of its two middle ones; 0 of none.
func Median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(all))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// Ratios are the median, the least and the largest of a to b, each by its round.
func Ratios(a, b []float64) (median, least, most float64) {
	if len(a) == 0 || len(a) != len(b) {
		return 0, 0, 0
	}
	all := make([]float64, len(a))
	for i := range all {
		all[i] = a[i] / b[i]
	}
	return Median(all), slices.Min(all), slices.Max(all)
}
