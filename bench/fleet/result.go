package main

import (
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/machine"
	"github.com/retryproxy/retryproxy/plot"
)

// document is everything that was measured.
type document struct {
	Args      []string      `json:"args"`
	Commit    string        `json:"commit"`
	Proxy     string        `json:"proxy"`  // what retryproxy version says
	Engine    string        `json:"engine"` // what the engine says that it is
	Machine   string        `json:"machine"`
	RateLimit int           `json:"rate_limit_per_second"`
	Arms      []*armResult  `json:"arms,omitempty"`
	Hold      *holdResult   `json:"hold,omitempty"`
	Rates     []rateResult  `json:"rates,omitempty"`
	Cost      []*costResult `json:"cost,omitempty"`
	Goals     []goal        `json:"goals"`
	Figure    *plot.Figure  `json:"figure,omitempty"`
}

func newDocument(args []string, o *options) *document {
	return &document{
		Args: args, Commit: machine.Commit(), Machine: machine.Describe(), RateLimit: o.rateLimit,
		Proxy: machine.Version(o.proxy, "version"), Engine: machine.Version(o.engine, "--version"),
	}
}

// armResult is what came of an arm. Its counts are those of the counted time.
type armResult struct {
	Name string `json:"name"`
	Says string `json:"says"`
	tick
	Time          float64        `json:"seconds_counted"`
	LimitedShare  float64        `json:"share_of_429_at_the_upstream"`
	GoodShare     float64        `json:"good_responses_share_of_rate_limit"`
	Amplification float64        `json:"sent_per_good_answer"`
	Kinds         map[string]int `json:"failures,omitempty"`
	P50           float64        `json:"p50_seconds"` // of the whole arm
	P99           float64        `json:"p99_seconds"`
	Most          float64        `json:"longest_seconds"`
	CPU           time.Duration  `json:"cpu_nanoseconds"`        // of all proxies
	Stock         *stock         `json:"engine_keeps,omitempty"` // at the end
	Periods       []periodResult `json:"periods,omitempty"`
	Seconds       []tick         `json:"seconds"`
}

// periodResult is what came of a part of an arm.
type periodResult struct {
	Name string  `json:"name"`
	From float64 `json:"from_seconds"`
	To   float64 `json:"to_seconds"`
	tick
	LimitedShare float64 `json:"share_of_429_at_the_upstream"`
	GoodShare    float64 `json:"good_responses_share_of_rate_limit"`
}

func newArmResult(s *stage, from, to time.Duration) *armResult {
	sum := s.record.sum(from, to)
	r := &armResult{
		Name: s.name, Says: s.says, tick: sum, Time: (to - from).Seconds(),
		LimitedShare: sum.limitedShare(), GoodShare: s.ofRateLimit(sum, to-from), Amplification: share(sum.Sent, sum.Good),
		Kinds: s.record.failures(),
		P50:   s.record.wait(0.5).Seconds(), P99: s.record.wait(0.99).Seconds(), Most: s.record.wait(1).Seconds(),
	}
	if len(s.acts) > 0 {
		for i, p := range s.times {
			end := to
			if i+1 < len(s.times) {
				end = s.times[i+1].from
			}
			t := s.record.sum(p.from, end)
			r.Periods = append(r.Periods, periodResult{p.name, p.from.Seconds(), end.Seconds(), t, t.limitedShare(), s.ofRateLimit(t, end-p.from)})
		}
	}
	for at := time.Duration(0); at+time.Second <= to; at += time.Second {
		r.Seconds = append(r.Seconds, s.record.sum(at, at+time.Second))
	}
	return r
}

// ofRateLimit is the share of the rate limit that clients had as good responses.
func (s *stage) ofRateLimit(t tick, took time.Duration) float64 {
	return float64(t.Good) / (float64(s.o.rateLimit) * took.Seconds())
}

// microseconds of CPU time of all proxies per request of a client.
func (r *armResult) microseconds() float64 {
	return float64(r.CPU.Microseconds()) / float64(max(1, r.requests()))
}
