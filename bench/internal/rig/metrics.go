package rig

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Level is what a process of the proxy holds.
type Level struct {
	Goroutines, Descriptors        int // Descriptors without idle connections to the upstream, which end unused
	Connections, InFlight, Waiting int
	RetryBuffer, RSS, Peak         int64 // bytes
}

// Level reads it from the metrics, and from /proc where there is one.
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

// Above reports whether l has more goroutines or descriptors than before, beyond a few that come and go.
func (l Level) Above(before Level, few int) bool {
	return l.Goroutines > before.Goroutines+few || l.Descriptors > before.Descriptors+few
}

// Settle waits until the level is as it should be, or limit is over, and returns the last one.
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

// Series is a scrape of metrics: values by name with labels.
type Series map[string]float64

// ReadSeries reads the Prometheus text format as far as the proxy uses it: a name, perhaps labels,
// and a value on each line.
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

// Sum adds up a metric of the proxy over all its labels. name is without the prefix retryproxy_.
func (s Series) Sum(name string) float64 {
	return s.By(name, "")[""]
}

// By adds up a metric of the proxy by the value of one label; "" is none.
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
