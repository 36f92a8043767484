package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// Headers between the clients of this program and the provider.
const (
	jobHeader      = "X-Job"  // number of the job
	calmHeader     = "X-Calm" // no limits, no faults, and a short generation: to measure latency
	responseHeader = "X-Response-Id"
)

// calmGeneration is the time until the first content of a calm job.
const calmGeneration = 10 * time.Millisecond

// provider is a vendor's API for one account. It is an http.Handler.
type provider struct {
	wire     wire
	schedule *schedule
	ledger   *ledger
	open     sync.WaitGroup // responses that are being sent

	mu               sync.Mutex // guards the buckets
	requests, tokens *rig.Bucket
}

func newProvider(w wire, f *schedule, requests, tokens float64) *provider {
	now := time.Now()
	return &provider{wire: w, schedule: f, ledger: newLedger(), requests: rig.NewBucket(requests, requests, now), tokens: rig.NewBucket(tokens, tokens, now)}
}

// question is what requests of both wires have in common.
type question struct {
	Stream              bool `json:"stream"`
	MaxTokens           int  `json:"max_tokens"`
	MaxCompletionTokens int  `json:"max_completion_tokens"`
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	arrived := time.Now()
	p.open.Add(1)
	defer p.open.Done()
	var q question
	number, err := strconv.Atoi(r.Header.Get(jobHeader))
	text, readErr := io.ReadAll(r.Body)
	if err != nil || readErr != nil || json.Unmarshal(text, &q) != nil {
		http.Error(w, "no job", http.StatusBadRequest)
		return
	}
	if r.Header.Get(calmHeader) != "" {
		p.calm(w, r.Context())
		return
	}
	attempt := p.ledger.arrive(number, arrived)
	id := strconv.Itoa(number) + "-" + strconv.Itoa(attempt)
	w.Header().Set(responseHeader, id)
	s := &sending{w: w, ledger: p.ledger, number: number}
	defer p.ledger.enter(func(e *entries) { e.sent[id] = body{s.text, !s.broken} })
	j := p.schedule.jobOf(number)
	j.stream, j.tokens = q.Stream, q.MaxTokens+q.MaxCompletionTokens
	p.respond(r.Context(), s, j, p.schedule.of(number, attempt))
}

// calm sends a stream without limits and faults.
func (p *provider) calm(w http.ResponseWriter, ctx context.Context) {
	w.Header().Set("Content-Type", eventStream)
	s := &sending{w: w}
	s.write(p.wire.prelude())
	if rig.Sleep(ctx, calmGeneration) {
		s.write(p.wire.content("word "), p.wire.end(1))
	}
}

func (p *provider) respond(ctx context.Context, s *sending, j job, f faultPlan) {
	if !j.stream && f.fault == errorEvent {
		f.fault = overloaded
	}
	switch f.fault {
	case limited, unavailable, overloaded, spent:
		p.made(f.fault)
		if f.fault == limited && f.second {
			s.askUntil(p.wire.usedUp(s.w.Header(), time.Now().Add(f.wait)))
			s.respondError(p.wire.refuse(s.w.Header(), limited, 0))
			return
		}
		p.refuse(s, f.fault, f.wait)
		return
	}
	if wait := p.admit(s.w.Header(), j.tokens); wait > 0 {
		p.ledger.enter(func(e *entries) { e.limited++ })
		p.refuse(s, limited, wait)
		return
	}
	if f.fault != noFault {
		p.made(f.fault)
	}
	if j.stream {
		p.stream(ctx, s, j, f)
		return
	}
	if !s.pause(ctx, j.generation) {
		return
	}
	p.bill(j)
	whole := p.wire.whole(j.tokens)
	if f.fault == cutBefore {
		s.cut(true)
	}
	s.header(200, jsonType, len(whole))
	if f.fault == cutAfter {
		s.write(whole[:len(whole)/2])
		s.cut(true)
	}
	s.write(whole)
}

// pieces is the number of events with content in a stream.
const pieces = 8

// stream sends the first content after a quarter of the time for the generation.
func (p *provider) stream(ctx context.Context, s *sending, j job, f faultPlan) {
	if f.fault == cutBefore && !f.second {
		if s.pause(ctx, j.generation) {
			p.bill(j)
			s.cut(true)
		}
		return
	}
	s.header(200, eventStream, -1)
	if f.fault == errorEvent {
		if f.second {
			s.write(p.wire.prelude())
		}
		text := p.wire.errorEvent(f.wait)
		if strings.Contains(text, "try again in") {
			s.askUntil(time.Now().Add(time.Duration(milliseconds(f.wait)) * time.Millisecond))
		}
		s.write(text)
		return
	}
	s.write(p.wire.prelude())
	if !s.pause(ctx, j.generation/4) {
		return
	}
	if f.fault == cutBefore {
		p.bill(j)
		s.cut(true)
	}
	for range pieces {
		s.write(p.wire.content(words(j.tokens / pieces)))
		if f.fault == cutAfter {
			p.bill(j)
			s.cut(false)
		}
		if !s.pause(ctx, j.generation*3/4/pieces) {
			return
		}
	}
	p.bill(j)
	s.write(p.wire.end(j.tokens))
}

func (p *provider) made(f fault) { p.ledger.enter(func(e *entries) { e.faults[f]++ }) }

func (p *provider) bill(j job) { p.ledger.note(j.number, func(r *record) { r.billed++ }) }

// admit takes from both buckets, or returns how long it takes until both have enough.
func (p *provider) admit(h http.Header, tokens int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.requests.Fill(now)
	p.tokens.Fill(now)
	wait := max(p.requests.Until(1), p.tokens.Until(float64(tokens)))
	if wait == 0 {
		p.requests.Level--
		p.tokens.Level -= float64(tokens)
		p.ledger.enter(func(e *entries) {
			if !e.ended {
				e.tokens += tokens
			}
		})
	}
	p.wire.limits(h, p.requests, p.tokens, now)
	return wait
}

// refuse sends an error. The time until which it asks to wait counts from before it is sent.
func (p *provider) refuse(s *sending, why fault, wait time.Duration) {
	if why == spent {
		wait = 0
		p.ledger.note(s.number, func(r *record) { r.spent = true })
	}
	status, text := p.wire.refuse(s.w.Header(), why, wait)
	s.askUntil(time.Now().Add(asked(s.w.Header())))
	s.respondError(status, text)
}

// asked returns the wait that the headers ask for. If there are two, the exact one counts.
func asked(h http.Header) time.Duration {
	if ms, err := strconv.Atoi(h.Get("retry-after-ms")); err == nil {
		return time.Duration(ms) * time.Millisecond
	}
	s, _ := strconv.Atoi(h.Get("retry-after"))
	return time.Duration(s) * time.Second
}

// sending is one response.
type sending struct {
	w      http.ResponseWriter
	ledger *ledger
	number int // of its job
	text   []byte
	broken bool // text is not all
}

// askUntil records that the next attempt of the job must not come before until.
func (s *sending) askUntil(until time.Time) {
	s.ledger.note(s.number, func(r *record) { r.notBefore = until })
}

// respondError sends a whole error.
func (s *sending) respondError(status int, text string) {
	s.header(status, jsonType, len(text))
	s.write(text)
}

// header sends the headers; length -1 for a stream.
func (s *sending) header(status int, contentType string, length int) {
	s.w.Header().Set("Content-Type", contentType)
	if length >= 0 {
		s.w.Header().Set("Content-Length", strconv.Itoa(length))
	}
	s.w.WriteHeader(status)
}

// write sends parts of the body at once.
func (s *sending) write(parts ...string) {
	for _, text := range parts {
		n, _ := io.WriteString(s.w, text) // a client that has left is seen by its context
		s.text = append(s.text, text[:n]...)
	}
	_ = http.NewResponseController(s.w).Flush()
}

// cut ends the connection. lost reports whether it is before the first content.
func (s *sending) cut(lost bool) {
	s.broken = true
	s.ledger.note(s.number, func(r *record) { r.cut, r.lost = true, r.lost || lost })
	panic(http.ErrAbortHandler)
}

// pause waits. If the client leaves, the response is not whole.
func (s *sending) pause(ctx context.Context, d time.Duration) bool {
	s.broken = !rig.Sleep(ctx, d)
	return !s.broken
}
