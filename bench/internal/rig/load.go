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
	"strings"
	"time"
)

// Load is a load that wrk sends, or h2load over HTTP/2.
type Load struct {
	URL         string
	Connections int
	For         time.Duration // whole seconds
	Method      string        // "" means GET
	BodyBytes   int
	Headers     int  // additional request headers, of 40 bytes
	Distinct    bool // no two requests have the same query and X-Trace-Id
	Streams     int  // at once on each connection, over HTTP/2; 0: HTTP/1.1
	Cores       []int
	GRPC        string // bench/interop/grpcload as a program, which then sends gRPC calls; URL is only their kind, unary or stream
	To          string // host:port, for GRPC
}

// Result is what wrk or h2load reports.
type Result struct {
	Requests     int
	Failed       int // responses other than 2xx and 3xx
	SocketErrors bool
	P50          time.Duration
}

// script sets method and body, for which wrk has no flags, and prints the results for parseWrk.
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
done = function(summary, latency)
  local e = summary.errors
  print("result", summary.requests, e.status, e.connect + e.read + e.write + e.timeout, latency:percentile(50))
end
`

// Send sends the load.
func (l *Load) Send(ctx context.Context) (*Result, error) {
	if l.GRPC != "" {
		return l.call(ctx)
	}
	method := l.Method
	if method == "" {
		method = "GET"
	}
	var b Bed
	defer b.End()
	dir := b.TempDir()
	if l.Streams > 0 {
		return l.sendHTTP2(ctx, method, dir)
	}
	if err := os.WriteFile(dir+"/load.lua", fmt.Appendf(nil, script, method, l.BodyBytes, l.Headers, l.Distinct), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "wrk", "-t1", "-c"+strconv.Itoa(l.Connections), "-d"+strconv.Itoa(max(1, int(l.For/time.Second)))+"s",
		"--timeout", "60s", "-s", dir+"/load.lua", l.URL)
	var out []byte
	if err := pinned(l.Cores, func() (err error) { out, err = cmd.CombinedOutput(); return err }); err != nil {
		return nil, fmt.Errorf("wrk: %w: %s", err, out)
	}
	return parseWrk(out)
}

// sendHTTP2 sends the load with h2load, which speaks HTTP/2 alone.
func (l *Load) sendHTTP2(ctx context.Context, method, dir string) (*Result, error) {
	args := []string{"-t1", "-c" + strconv.Itoa(l.Connections), "-m" + strconv.Itoa(l.Streams), "-D" + strconv.Itoa(max(1, int(l.For/time.Second))), "-H", ":method: " + method}
	if l.BodyBytes > 0 {
		if err := os.WriteFile(dir+"/body", make([]byte, l.BodyBytes), 0o600); err != nil {
			return nil, err
		}
		args = append(args, "-d", dir+"/body")
	}
	var out []byte
	if err := pinned(l.Cores, func() (err error) {
		out, err = exec.CommandContext(ctx, "h2load", append(args, l.URL)...).CombinedOutput()
		return err
	}); err != nil {
		return nil, fmt.Errorf("h2load: %w: %s", err, out)
	}
	return parseH2load(out)
}

// call sends gRPC calls.
func (l *Load) call(ctx context.Context) (*Result, error) {
	cmd := exec.CommandContext(ctx, l.GRPC, l.URL, strconv.Itoa(l.Connections), strconv.Itoa(l.Streams), l.For.String(), l.To)
	var out []byte
	if err := pinned(l.Cores, func() (err error) { out, err = cmd.CombinedOutput(); return err }); err != nil {
		return nil, fmt.Errorf("grpcload: %w: %s", err, out)
	}
	_, line, _ := strings.Cut("\n"+string(out), "\nresult")
	r := &Result{}
	if _, err := fmt.Sscan(line, &r.Requests, &r.Failed); err != nil {
		return nil, fmt.Errorf("grpcload printed no result: %s", out)
	}
	return r, nil
}

var (
	h2loadRequests = regexp.MustCompile(`requests: \d+ total, \d+ started, (\d+) done, \d+ succeeded, \d+ failed, (\d+) errored`)
	h2loadStatus   = regexp.MustCompile(`status codes: \d+ 2xx, \d+ 3xx, (\d+) 4xx, (\d+) 5xx`)
)

// parseH2load reads what h2load prints. It prints no median.
func parseH2load(out []byte) (*Result, error) {
	requests, status := h2loadRequests.FindSubmatch(out), h2loadStatus.FindSubmatch(out)
	if requests == nil || status == nil {
		return nil, fmt.Errorf("h2load printed no result: %s", out)
	}
	n := func(b []byte) int { v, _ := strconv.Atoi(string(b)); return v } // digits
	return &Result{Requests: n(requests[1]), Failed: n(status[1]) + n(status[2]), SocketErrors: n(requests[2]) > 0}, nil
}

// parseWrk reads what script prints.
func parseWrk(out []byte) (*Result, error) {
	_, line, _ := strings.Cut(string(out), "\nresult")
	r, errs, us := &Result{}, 0, 0.0
	if _, err := fmt.Sscan(line, &r.Requests, &r.Failed, &errs, &us); err != nil {
		return nil, fmt.Errorf("wrk printed no result: %s", out)
	}
	r.SocketErrors, r.P50 = errs > 0, time.Duration(us*float64(time.Microsecond))
	return r, nil
}

// Cost sends a load to p. It returns the CPU time of p per request, in microseconds.
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

// Division says who uses which cores.
type Division struct {
	One  []int // a proxy on one core
	Two  []int // a proxy on two, if there are two
	Load []int // upstream and wrk
	// Beside is true if the load does not share cores with a proxy on two.
	Beside bool
}

// Divide assigns the first cores of this process to the proxy and the others to the load.
func Divide() Division {
	all := Cores()
	d := Division{One: all[:1], Two: all[:min(2, len(all))], Load: all, Beside: len(all) >= 4}
	if len(all) > 1 {
		d.Load = all[1:]
	}
	return d
}

// Median returns the median; 0 if there are no values.
func Median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(all))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// Rounds gives each of names a turn in every round, in a rotating order. Round -1 opens connections and
// fills buffers. It does not count.
func Rounds(n int, names []string, turn func(round int, name string) error) error {
	for round := -1; round < n; round++ {
		for i := range names {
			name := names[(i+round+1)%len(names)]
			if err := turn(round, name); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// Figures are the results of one proxy.
type Figures struct {
	All    []float64 `json:"all"` // by rounds
	Median float64   `json:"median"`
	Ratio  float64   `json:"ratio,omitempty"` // to another proxy, the median of the ratios within the rounds
	Low    float64   `json:"ratio_lowest,omitempty"`
	High   float64   `json:"ratio_highest,omitempty"`
}

// Conclude sets the median and the ratios to another proxy. There are no ratios if that has another number
// of figures.
func (f *Figures) Conclude(to []float64) {
	f.Median = Median(f.All)
	if f.Ratio, f.Low, f.High = 0, 0, 0; len(f.All) == 0 || len(f.All) != len(to) {
		return
	}
	ratios := make([]float64, len(to))
	for i := range to {
		ratios[i] = f.All[i] / to[i]
	}
	f.Ratio, f.Low, f.High = Median(ratios), slices.Min(ratios), slices.Max(ratios)
}
