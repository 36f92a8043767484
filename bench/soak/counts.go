package main

import (
	"fmt"
	"math"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/series"
)

// level is what a proxy without work holds.
type level struct {
	Goroutines      int `json:"goroutines"`
	Descriptors     int `json:"descriptors"`
	Connections     int `json:"connections"`
	RetryBufferUsed int `json:"retry_buffer_bytes"`
	InFlight        int `json:"in_flight"`
	Waiting         int `json:"waiting"`
	Idle            int `json:"idle_upstream_connections"`
}

func (p *proxy) level() (level, error) {
	s, err := p.scrape()
	if err != nil {
		return level{}, err
	}
	return level{
		Goroutines:      int(s["go_goroutines"]),
		Descriptors:     p.descriptors(),
		Connections:     int(s.Sum("connections")),
		RetryBufferUsed: int(s.Sum("retry_buffer_bytes")),
		InFlight:        int(s.Sum("requests_in_flight")),
		Waiting:         int(s.Sum("requests_waiting")),
		Idle:            int(s.Sum("upstream_connections")),
	}, nil
}

// slack is how many goroutines and descriptors more than at the beginning are
// no leak: the runtime starts some of its own.
const slack = 3

// over says what is above the level before the run; empty: nothing.
func (l level) over(before level) string {
	switch {
	case l.Connections > 0, l.RetryBufferUsed > 0, l.InFlight > 0, l.Waiting > 0:
	case l.Goroutines > before.Goroutines+slack:
	case l.Descriptors-l.Idle > before.Descriptors+slack:
	default:
		return ""
	}
	return fmt.Sprintf("%+v, before the run %+v", l, before)
}

// settleTime is how long the proxy has to get back to its idle level, once
// clients and upstream are gone.
const settleTime = 15 * time.Second

// settle waits for the idle level. It gives the last one seen.
func (p *proxy) settle(l *ledger, before level) level {
	for end := time.Now().Add(settleTime); ; time.Sleep(200 * time.Millisecond) {
		now, err := p.level()
		if err == nil && now.over(before) == "" {
			return now
		}
		if time.Now().After(end) {
			if err != nil {
				l.violation("no metrics", "%v", err)
			} else {
				l.violation("not back at the idle level", "%v after the last client left: %s", settleTime, now.over(before))
			}
			return now
		}
	}
}

// checkCounts compares the proxy's counts with what was sent, and with each
// other, once nothing is in flight.
func checkCounts(l *ledger, s series.Series, sent, heads uint64, breakers float64) {
	equal := func(what string, got float64, with string, want float64) {
		if math.Abs(got-want) > 0.5 {
			l.violation("counts do not add up", "%s is %.0f, %s %.0f", what, got, with, want)
		}
	}
	requests, attempts := s.Sum("requests_total"), s.Sum("attempts_total")
	equal("outcomes_total", s.Sum("outcomes_total"), "requests sent are", float64(sent))
	equal("requests_total", requests, "outcomes_total is", s.Sum("outcomes_total"))
	equal("request_duration_seconds_count", s.Sum("request_duration_seconds_count"), "requests_total is", requests)
	equal("attempts_per_request_sum", s.Sum("attempts_per_request_sum"), "attempts_total is", attempts)
	equal("attempt_duration_seconds_count", s.Sum("attempt_duration_seconds_count"), "attempts_total is", attempts)
	equal("outcome refused", s.By("outcomes_total", "outcome")["refused"], "malformed requests sent are", breakers)
	equal("parse_refusals_total", s.Sum("parse_refusals_total"), "malformed requests sent are", breakers)
	equal("faults_total", s.Sum("faults_total"), "should be", 0)
	if float64(heads) > attempts {
		l.violation("counts do not add up", "the upstream saw %d attempts, attempts_total is %.0f", heads, attempts)
	}
	if r := s.Sum("retries_total"); r > attempts {
		l.violation("counts do not add up", "retries_total is %.0f, attempts_total %.0f", r, attempts)
	}
}
