package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// sample is the metrics of all proxies at one time, added up. Counters count
// from the start; what is 0 is left out. A limit that does not bind (+Inf) is
// left out as well, so limits of several proxies are the sum of those that bind.
type sample struct {
	At     float64            `json:"at_seconds"`
	Values map[string]float64 `json:"values"`
}

// sampledMetrics are those that explain what the breaker and the limit do, without
// their prefix retryproxy_.
var sampledMetrics = []string{
	"breaker_state", "breaker_opened_total", "breaker_probes_total", "concurrency_limit", "concurrency_limit_bound_total", "queued_requests",
	"outcomes_total", "attempts_total", "retries_total", "upstream_connections", "requests_in_flight", "dial_errors_total",
}

// follow samples the proxies until ctx ends.
func follow(ctx context.Context, admins []string, every time.Duration, r *record) {
	if len(admins) == 0 {
		return
	}
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		s := sample{At: r.since().Seconds(), Values: map[string]float64{}}
		for _, a := range admins {
			if err := scrape(ctx, client, a, s.Values); err != nil {
				s.Values["unreadable"]++
			}
		}
		r.sampled(s)
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// scrape adds one proxy's values to the sums.
func scrape(ctx context.Context, client *http.Client, admin string, sums map[string]float64) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/metrics", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return addValues(resp.Body, sums)
}

// addValues reads the text format. A series is named by its metric and its
// label values but for route and upstream, of which there is one each:
// breaker_state/closed.
func addValues(r io.Reader, sums map[string]float64) error {
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		line, ours := strings.CutPrefix(sc.Text(), "retryproxy_")
		if !ours {
			continue
		}
		space := strings.LastIndexByte(line, ' ')
		if space < 0 {
			continue
		}
		name, wanted := seriesName(line[:space])
		v, err := strconv.ParseFloat(line[space+1:], 64)
		if wanted && err == nil && v != 0 && !math.IsInf(v, 0) {
			sums[name] += v
		}
	}
	return sc.Err()
}

func seriesName(s string) (name string, wanted bool) {
	metric, labels, _ := strings.Cut(s, "{")
	for _, m := range sampledMetrics {
		wanted = wanted || m == metric
	}
	if !wanted {
		return "", false
	}
	for _, label := range strings.Split(strings.TrimSuffix(labels, "}"), ",") {
		if key, value, ok := strings.Cut(label, "="); ok && key != "route" && key != "upstream" {
			metric += "/" + strings.Trim(value, `"`)
		}
	}
	return metric, true
}
