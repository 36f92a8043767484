package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// proxy is the program under attack.
type proxy struct{ *rig.Process }

// startProxy runs it with its defaults, but for a time for heads that a short
// attack meets too, and what the stage says.
func startProxy(program string, st *stage) (*proxy, error) {
	env := append([]string{"RETRYPROXY_LOG_LEVEL=error", "RETRYPROXY_READ_HEADER_TIMEOUT=1s"}, st.env...)
	all, err := rig.StartMany(&rig.Spec{Program: program, Upstream: st.upstream, Env: env, Admin: st.admin, By: st.by}, 1)
	if err != nil {
		return nil, err
	}
	return &proxy{all[0]}, nil
}

// reading is what the process holds.
type reading struct {
	RSS         int64 `json:"rss_bytes"`
	Peak        int64 `json:"peak_rss_bytes"` // since the start
	Goroutines  int   `json:"goroutines"`
	Descriptors int   `json:"descriptors"`
}

func (p *proxy) read() (reading, error) {
	var r reading
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return r, err
	}
	r.RSS, r.Peak = kibOf(status, "\nVmRSS:"), kibOf(status, "\nVmHWM:")
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
	if err != nil {
		return r, err
	}
	m, err := p.metrics()
	r.Goroutines = int(m["go_goroutines"])
	r.Descriptors = len(open) - int(m["idle"]) // kept connections to the upstream end when they are no longer used
	return r, err
}

func kibOf(status []byte, name string) int64 {
	_, rest, _ := bytes.Cut(status, []byte(name))
	fields := bytes.Fields(rest[:min(len(rest), 64)])
	if len(fields) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(string(fields[0]), 10, 64)
	return n << 10
}

// admins asks on a connection of its own each time, so that none of its is counted later.
var admins = http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}

// metrics reads goroutines and idle connections to the upstream.
func (p *proxy) metrics() (map[string]float64, error) {
	res, err := admins.Get("http://" + p.Admin + "/metrics")
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	m := map[string]float64{}
	for sc := bufio.NewScanner(res.Body); sc.Scan(); {
		name, value, _ := strings.Cut(sc.Text(), " ")
		if strings.HasPrefix(name, "retryproxy_upstream_connections{") && strings.Contains(name, `state="idle"`) {
			name = "idle"
		}
		m[name], _ = strconv.ParseFloat(value, 64)
	}
	if m["go_goroutines"] == 0 {
		return nil, errors.New("no go_goroutines among the metrics")
	}
	return m, nil
}

// settle waits until the process holds no more than before, within limit, and
// gives what it holds then. A few goroutines and descriptors come and go.
func (p *proxy) settle(before reading, limit time.Duration) (reading, error) {
	for end := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) {
		now, err := p.read()
		if err != nil || back(before, now) || time.Now().After(end) {
			return now, err
		}
	}
}

// slack is how many more goroutines and descriptors are the same as before.
const slack = 12

func back(before, now reading) bool {
	return now.Goroutines <= before.Goroutines+slack && now.Descriptors <= before.Descriptors+slack
}
