package rig

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Level is what a proxy process holds.
type Level struct {
	Goroutines, Descriptors        int // Descriptors leaves out idle connections to the upstream
	Connections, InFlight, Waiting int
	RetryBuffer, RSS, Peak         int64 // bytes
}

// Level reads the level from metrics and /proc.
func (p *Proxy) Level() (l Level, err error) {
	open := p.Descriptors()
	s, err := p.Scrape()
	if err != nil {
		return l, err
	}
	l = Level{
		Goroutines: int(s["go_goroutines"]), Descriptors: open - int(s.By("upstream_connections", "state")["idle"]),
		Connections: int(s.Sum("connections")), InFlight: int(s.Sum("requests_in_flight")), Waiting: int(s.Sum("requests_waiting")), RetryBuffer: int64(s.Sum("retry_buffer_bytes")),
	}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	for name, to := range map[string]*int64{"VmRSS:": &l.RSS, "VmHWM:": &l.Peak} {
		_, rest, _ := bytes.Cut(status, []byte("\n"+name))
		_, _ = fmt.Fscan(bytes.NewReader(rest), to)
		*to <<= 10
	}
	return l, nil
}

// Above reports whether l has over few more goroutines or descriptors than before.
func (l Level) Above(before Level, few int) bool {
	return l.Goroutines > before.Goroutines+few || l.Descriptors > before.Descriptors+few
}

// Settle waits until so accepts the level, at most for limit, and returns the last level.
func (p *Proxy) Settle(limit time.Duration, so func(l Level) bool) (l Level, err error) {
	for end := time.Now().Add(limit); ; {
		if l, err = p.Level(); err == nil && so(l) || time.Now().After(end) {
			return l, err
		}
		select {
		case <-p.Exited:
			return l, fmt.Errorf("the proxy has ended; it said:\n%s", p.Said())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Series are scraped metrics: values by names with labels.
type Series map[string]float64

// ReadSeries parses the Prometheus text format as the proxy writes it: a name, perhaps labels, and a value
// on each line.
func ReadSeries(text string) (Series, error) {
	s := Series{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		cut := strings.LastIndexByte(line, ' ')
		if cut < 0 || line[0] == '#' {
			continue
		}
		v, err := strconv.ParseFloat(line[cut+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metrics: line %q: %w", line, err)
		}
		s[line[:cut]] = v
	}
	return s, nil
}

// Sum returns the sum of a metric over all labels. name lacks the prefix retryproxy_.
func (s Series) Sum(name string) float64 {
	return s.By(name, "")[""]
}

// By returns the sums of a metric by the values of a label. Without a label there is one sum.
func (s Series) By(name, label string) map[string]float64 {
	out := map[string]float64{}
	for k, v := range s {
		metric, labels, _ := strings.Cut(k, "{")
		if metric == "retryproxy_"+name {
			value := ""
			if label != "" {
				_, value, _ = strings.Cut(labels, label+`="`)
				value, _, _ = strings.Cut(value, `"`)
			}
			out[value] += v
		}
	}
	return out
}

// CPU returns the user and system time of the process and its children so far.
func (c *Child) CPU() (time.Duration, error) {
	ns, err := sumOver(c.PID(), cpuOf)
	return time.Duration(ns), err
}

// PSS returns the proportional set size of the process and its children, in bytes.
func (c *Child) PSS() (int64, error) { return sumOver(c.PID(), pssOf) }

func pssOf(pid int) (int64, error) {
	name := fmt.Sprintf("/proc/%d/smaps_rollup", pid)
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), "\nPss:")
	kib, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, err := strconv.ParseInt(kib, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return n << 10, nil
}

// sumOver returns the sum of a number over a process and its descendants.
func sumOver(pid int, of func(pid int) (int64, error)) (int64, error) {
	sum, err := of(pid)
	if err != nil {
		return 0, err
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, f := range bytes.Fields(children) {
		child, _ := strconv.Atoi(string(f))
		n, err := sumOver(child, of)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, err
}

// Descriptors returns the number of open descriptors; 0 if it is unknown.
func (c *Child) Descriptors() int {
	open, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", c.PID()))
	return len(open)
}

// AtMost returns n, or fewer if that many concurrent requests exceed the descriptor limit. Each takes two
// descriptors.
func AtMost(n int) int {
	const besides = 200
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return n
	}
	return min(n, int(min(limit.Cur, 1<<20)-besides)/2)
}
