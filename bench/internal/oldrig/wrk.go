package oldrig

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
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
	Fields      int  // request headers of 40 bytes besides the usual ones
	Distinct    bool // no two requests have the same query and X-Trace-Id
	Cores       []int
}

// Result is what wrk saw.
type Result struct {
	Requests     int
	Failed       int // answers other than 2xx and 3xx
	SocketErrors bool
	P50, P99     time.Duration
}

// script sets method and body; wrk has no flags for them.
const script = `wrk.method = %q
if %d > 0 then wrk.body = string.rep("x", %d); wrk.headers["Content-Type"] = "application/octet-stream" end
for i = 1, %d do wrk.headers[string.format("X-Field-%%04d", i)] = "abcdefghijklmnopqrstuvwx" end
`

const distinctScript = script + `local n = 0
request = function()
  n = n + 1
  wrk.headers["X-Trace-Id"] = string.format("%%016x", n)
  return wrk.format(nil, wrk.path .. "?item=" .. n)
end
`

var (
	wrkRequests = regexp.MustCompile(`(\d+) requests in`)
	wrkFailed   = regexp.MustCompile(`Non-2xx or 3xx responses: (\d+)`)
	wrkErrors   = regexp.MustCompile(`Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)`)
	wrkP50      = regexp.MustCompile(`\s50%\s+([\d.]+)(us|ms|s|m)`)
	wrkP99      = regexp.MustCompile(`\s99%\s+([\d.]+)(us|ms|s|m)`)
)

// Send runs wrk once.
func (l *Load) Send(ctx context.Context) (*Result, error) {
	method := l.Method
	if method == "" {
		method = "GET"
	}
	text := script
	if l.Distinct {
		text = distinctScript
	}
	file, err := tempFile("load.lua", fmt.Sprintf(text, method, l.BodyBytes, l.BodyBytes, l.Fields))
	if err != nil {
		return nil, err
	}
	defer file.remove()
	cmd := exec.CommandContext(ctx, "wrk", "-t1", "-c"+strconv.Itoa(l.Connections), "-d"+strconv.Itoa(max(1, int(l.For/time.Second)))+"s",
		"--timeout", "60s", "--latency", "-s", file.path, l.URL)
	var out []byte
	err = pinned(l.Cores, func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("wrk: %w: %s", err, out)
	}
	return parseWrk(out)
}

func parseWrk(out []byte) (*Result, error) {
	r := &Result{}
	m := wrkRequests.FindSubmatch(out)
	if m == nil {
		return nil, fmt.Errorf("wrk said nothing that is understood: %s", out)
	}
	r.Requests, _ = strconv.Atoi(string(m[1]))
	if m := wrkFailed.FindSubmatch(out); m != nil {
		r.Failed, _ = strconv.Atoi(string(m[1]))
	}
	r.SocketErrors = wrkErrors.Match(out)
	r.P50, r.P99 = wrkTime(wrkP50, out), wrkTime(wrkP99, out)
	return r, nil
}

func wrkTime(at *regexp.Regexp, out []byte) time.Duration {
	m := at.FindSubmatch(out)
	if m == nil {
		return 0
	}
	d, _ := time.ParseDuration(string(m[1]) + string(m[2]))
	return d
}
