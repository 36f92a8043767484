package main

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// matterOf makes a case in which all is right: a GET, answered whole at the
// first attempt. Tests then spoil one thing.
func matterOf() (*plan, *reply, []attempt) {
	a := attempt{script: script{kind: responds, status: 200, framing: byLength, body: body{seed: 1, id: 1, side: responseSide, size: 100}}, whole: true}
	resp := &http.Response{StatusCode: 200, ContentLength: 100, Header: http.Header{
		fieldTwice: {"a", "b"}, "X-Retryproxy-Attempts": {"1"}}}
	return &plan{id: 1, method: "GET", minor: 1, behavior: behaves}, &reply{resp: resp, took: 10 * time.Millisecond}, []attempt{a}
}

// own makes the reply one of the proxy itself, with nothing from the upstream.
func own(got *reply, seen []attempt, status int, reason string) {
	got.attempt = -1
	got.resp.StatusCode = status
	got.resp.Header.Set("X-Retryproxy-Reason", reason)
	got.text = `{"reason":"` + reason + `"}`
	for i := range seen {
		seen[i].script.kind, seen[i].whole = resets, false
	}
}

func TestJudgement(t *testing.T) {
	cut := errors.New("unexpected EOF")
	tests := []struct {
		name  string
		spoil func(p *plan, got *reply, seen []attempt)
		want  string // the kind of violation; empty: none
	}{
		{"all right", func(*plan, *reply, []attempt) {}, ""},
		{"another body", func(_ *plan, g *reply, _ []attempt) { g.wrong = "byte 1" }, "response body changed"},
		{"another status", func(_ *plan, g *reply, _ []attempt) { g.resp.StatusCode = 201 }, "response headers changed"},
		{"doubled field joined", func(_ *plan, g *reply, _ []attempt) { g.resp.Header[fieldTwice] = []string{"a, b"} }, "response headers changed"},
		{"attempts not told", func(_ *plan, g *reply, _ []attempt) { g.resp.Header.Del("X-Retryproxy-Attempts") }, "attempts not told"},
		{"to an attempt never made", func(_ *plan, g *reply, _ []attempt) { g.attempt = 1 }, "answer from nowhere"},
		{"whole made cut", func(_ *plan, g *reply, _ []attempt) { g.err = cut }, "whole response looks cut"},
		{"cut stays cut", func(_ *plan, g *reply, s []attempt) { g.err, s[0].script.kind = cut, cuts }, ""},
		{"cut made whole", func(_ *plan, _ *reply, s []attempt) { s[0].script.kind = cuts }, "cut response looks whole"},
		{"cut is whole for HEAD", func(p *plan, _ *reply, s []attempt) { p.method, s[0].script.kind = "HEAD", cuts }, ""},
		{"HEAD with another length", func(p *plan, g *reply, _ []attempt) { p.method, g.resp.ContentLength = "HEAD", 99 }, "response headers changed"},
		{"trailer lost", func(_ *plan, _ *reply, s []attempt) { s[0].script.body.trailer = true }, "response trailer changed"},
		{"trailer invented", func(_ *plan, g *reply, _ []attempt) { g.resp.Trailer = http.Header{fieldSum: {"x"}} }, "response trailer changed"},
		{"close not said", func(p *plan, _ *reply, _ []attempt) { p.close = true }, "close not said"},
		{"103 from nowhere", func(_ *plan, g *reply, _ []attempt) { g.interim = []int{103} }, "1xx from nowhere"},
		{"103 sent", func(_ *plan, g *reply, s []attempt) { g.interim, s[0].script.interim = []int{103}, []int{103} }, ""},
		{"answer of a reset", func(_ *plan, _ *reply, s []attempt) { s[0].script.kind = resets }, "response headers changed"},

		{"no response", func(_ *plan, g *reply, _ []attempt) { g.resp = nil }, "no response"},
		{"no answer to a large upload answered early", func(p *plan, g *reply, s []attempt) {
			g.resp, p.body.size, s[0].early = nil, 1<<20, true
		}, ""},
		{"no answer to a small upload", func(p *plan, g *reply, s []attempt) { g.resp, p.body.size, s[0].early = nil, 100, true }, "no response"},

		{"own 502", func(_ *plan, g *reply, s []attempt) { own(g, s, 502, "reset") }, ""},
		{"own 502 though answered", func(_ *plan, g *reply, s []attempt) { own(g, s, 502, "reset"); s[0].whole = true }, "answer withheld"},
		{"own 502 after a timeout", func(_ *plan, g *reply, s []attempt) {
			own(g, s, 502, "reset")
			s[0].whole, g.took = true, time.Second
		}, ""},
		{"own 502 cut", func(_ *plan, g *reply, s []attempt) { own(g, s, 502, "reset"); g.err = cut }, "own response cut off"},
		{"own 502 without its reason", func(_ *plan, g *reply, s []attempt) { own(g, s, 502, "reset"); g.text = "" }, "own response without its reason"},
		{"own 504 too soon", func(_ *plan, g *reply, s []attempt) { own(g, s, 504, "deadline") }, "hasty 504"},
		{"own 504 in time", func(_ *plan, g *reply, s []attempt) { own(g, s, 504, "deadline"); g.took = time.Second }, ""},
		{"a response of nobody's", func(_ *plan, g *reply, s []attempt) { own(g, s, 200, "") }, "answer from nowhere"},
		{"own 400 to good manners", func(_ *plan, g *reply, s []attempt) { own(g, s, 400, "request_broken") }, "answer from nowhere"},
		{"own 400 to a cut upload", func(p *plan, g *reply, s []attempt) { own(g, s, 400, "request_broken"); p.behavior = cutsUpload }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, got, seen := matterOf()
			tt.spoil(p, got, seen)
			l := newSoak(1)
			l.judge(&record{plan: p, attempts: seen}, got)
			want := []string{tt.want}
			if tt.want == "" {
				want = nil
			}
			if !slices.Equal(l.Kinds(), want) {
				t.Errorf("violations %q, want %q: %v", l.Kinds(), want, l.All())
			}
		})
	}
}

func TestTheNewestAnswerIsGiven(t *testing.T) {
	p, got, seen := matterOf()
	seen[0].script.status, got.resp.StatusCode = 503, 503
	seen = append(seen, attempt{script: script{kind: responds, status: 500}, whole: true})
	l := newSoak(1)
	l.judge(&record{plan: p, attempts: seen}, got)
	if !slices.Equal(l.Kinds(), []string{"older answer given"}) {
		t.Errorf("violations %q", l.All())
	}
}

func TestCountsMustAddUp(t *testing.T) {
	good := func() rig.Series {
		return rig.Series{
			`retryproxy_outcomes_total{route="a",outcome="success"}`: 10,
			`retryproxy_requests_total{route="a"}`:                   10, `retryproxy_request_duration_seconds_count{route="a"}`: 10,
			`retryproxy_attempts_total{route="a"}`: 12, `retryproxy_attempts_per_request_sum{route="a"}`: 12,
			`retryproxy_attempt_duration_seconds_count{route="a"}`: 12,
			`retryproxy_retries_total{route="a"}`:                  4,
		}
	}
	checked := func(m rig.Series, requests, tried int64) *soak {
		s := newSoak(1)
		s.Count(sent, requests)
		s.Count(attempts, tried)
		s.checkCounts(m)
		return s
	}
	if s := checked(good(), 10, 11); s.N() != 0 {
		t.Fatalf("violations of right counts: %v", s.All())
	}
	for name := range good() {
		m := good()
		m[name] += 10
		if checked(m, 10, 11).N() == 0 {
			t.Errorf("%s too high is not found", name)
		}
	}
	refused := good()
	refused[`retryproxy_parse_refusals_total{reason="x"}`] = 1
	if checked(refused, 10, 11).N() == 0 {
		t.Error("a refusal of what is valid is not found")
	}
	if checked(good(), 10, 13).N() != 1 || checked(good(), 9, 11).N() != 1 {
		t.Error("attempts not counted, or requests not sent, are not found")
	}
}

func TestWhatIsLeftIsFound(t *testing.T) {
	before := rig.Level{Goroutines: 10, Descriptors: 10}
	for name, tt := range map[string]struct {
		after rig.Level
		idle  bool
	}{
		"as before":            {rig.Level{Goroutines: 10, Descriptors: 10}, true},
		"less":                 {rig.Level{Goroutines: 8, Descriptors: 9}, true},
		"a few more":           {rig.Level{Goroutines: 10 + slack, Descriptors: 10 + slack}, true},
		"goroutines":           {rig.Level{Goroutines: 10 + slack + 1}, false},
		"descriptors":          {rig.Level{Descriptors: 10 + slack + 1}, false},
		"a connection":         {rig.Level{Connections: 1}, false},
		"a byte for a retry":   {rig.Level{RetryBuffer: 1}, false},
		"a request in flight":  {rig.Level{InFlight: 1}, false},
		"a request that waits": {rig.Level{Waiting: 1}, false},
	} {
		if got := idle(tt.after, before); got != tt.idle {
			t.Errorf("%s: idle is %v", name, got)
		}
	}
}
