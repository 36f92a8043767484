package report_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/requesttest"
	"github.com/retryproxy/retryproxy/proxy/report"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/trace"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// reported is a request that is reported.
type reported struct {
	*requesttest.Client
	p report.Report

	observed []string // what the observers were called with
	kept     []settings.Ended
	asked    []string // what the journal was asked about
	wants    bool     // the journal wants the next requests
	spans    spans
	log      bytes.Buffer

	t *testing.T
}

// reportOf returns the request in text, about which observer, log and journal are told.
func reportOf(t *testing.T, text string, change func(c *settings.Config)) *reported {
	t.Helper()
	s := &reported{t: t, wants: true}
	encoder := zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "msg", LevelKey: "level", EncodeLevel: zapcore.LowercaseLevelEncoder, EncodeDuration: zapcore.SecondsDurationEncoder})
	s.Client = requesttest.Begin(t, text, func(c *settings.Config) {
		c.Observe = func(route string) func() settings.Observer {
			return func() settings.Observer { return &observer{s: s} }
		}
		c.Journal, c.GaveUpLogPerMinute = s, 5
		c.Log = zap.New(zapcore.NewCore(encoder, zapcore.AddSync(&s.log), zap.InfoLevel))
		if change != nil {
			change(c)
		}
	})
	s.p.Init(s.Request)
	s.begin()
	return s
}

func (s *reported) begin() {
	s.p.Reset()
	s.p.Begin()
	if s.Settings.Tracer != nil {
		s.p.BeginTrace()
	}
	s.Out.FindID()
}

// next begins another request of the connection.
func (s *reported) next(text string) {
	s.t.Helper()
	s.Next(text)
	s.begin()
}

// failed is a result without a response.
func failed(c policy.Cause) policy.Result { return policy.Result{Cause: c} }

// responded is a response.
func responded(status int) policy.Result {
	return policy.Result{Cause: policy.CauseStatus, Status: status}
}

// sent returns an attempt of the request that has just begun.
func (s *reported) sent(hedge bool) *attempt.Attempt {
	s.BeginAttempt()
	now := s.Time.Now()
	a := new(attempt.Attempt)
	a.Begin(s.Attempts(), now, s.p.AttemptSpan(s.Attempts(), now, hedge), attempt.Options{})
	a.DialFailed(&upstream.DialError{Addr: "10.0.0.1:80"}) // so it has an address
	return a
}

// spanOf returns the span of an attempt that has not ended.
func spanOf(a *attempt.Attempt) trace.AttemptSpan { return a.Span() }

// attempt makes an attempt that takes some time and ends so.
func (s *reported) attempt(took time.Duration, res policy.Result, class policy.Class) {
	a := s.sent(false)
	time.Sleep(took)
	s.Time.Tick()
	s.p.AttemptDone(a, &res, class)
}

// noConnection returns an attempt that got no connection.
func (s *reported) noConnection(text string) *attempt.Attempt {
	a := s.sent(false)
	a.DialFailed(&upstream.DialError{Kind: upstream.KindRefused, Addr: "10.0.0.2:80", Err: errors.New(text)})
	return a
}

// wantObserved checks the calls of the observers, of which each was told in order.
func (s *reported) wantObserved(want ...string) {
	s.t.Helper()
	if !slices.Equal(s.observed, want) {
		s.t.Errorf("observed\n%s\nwant\n%s", strings.Join(s.observed, "\n"), strings.Join(want, "\n"))
	}
	s.observed = nil
}

// line returns the only line of the log, and nil if there is none.
func (s *reported) line() (line map[string]any) {
	s.t.Helper()
	text := s.log.String()
	s.log.Reset()
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &line); err != nil {
		s.t.Fatalf("%v: %s", err, text)
	}
	return line
}

// Wants implements settings.Journal.
func (s *reported) Wants(ended int64, took time.Duration, o policy.Outcome) bool {
	s.asked = append(s.asked, fmt.Sprintf("%v %v %v", time.Until(time.Unix(0, ended)), took, o))
	return s.wants
}

// Keep implements settings.Journal.
func (s *reported) Keep(e *settings.Ended) {
	kept := *e
	kept.Method, kept.Path, kept.RequestID, kept.Steps = slices.Clone(e.Method), slices.Clone(e.Path), slices.Clone(e.RequestID), slices.Clone(e.Steps)
	s.kept = append(s.kept, kept)
}

// observer writes its calls down.
type observer struct {
	settings.NoObserver
	s *reported
}

func (o *observer) note(format string, args ...any) {
	o.s.observed = append(o.s.observed, fmt.Sprintf(format, args...))
}

func (o *observer) RequestBegan() { o.note("began") }
func (o *observer) AttemptDone(class policy.Class, code int, d time.Duration) {
	o.note("attempt %v %d %v", class, code, d)
}
func (o *observer) WouldRetry(reason policy.Reason) { o.note("would retry %v", reason) }
func (o *observer) Queued(waited time.Duration)     { o.note("queued %v", waited) }
func (o *observer) RequestDone(method []byte, code int, outcome policy.Outcome, d, added time.Duration, attempts int) {
	o.note("done %s %d %v %v %v %d", method, code, outcome, d, added, attempts)
}
func (o *observer) Traced(traceID string, code int, d time.Duration) {
	o.note("traced %s %d %v", traceID, code, d)
}

const traceID = "0af7651916cd43dd8448eb211c80319c"

// spans is a Tracer that keeps what its spans got.
type spans struct {
	notRecorded bool
	requests    []trace.Request
	attempts    []trace.Attempt
	done        []trace.AttemptEnd
	waits       []string
	ends        []trace.End
}

func (s *spans) Request(r *trace.Request) trace.RequestSpan {
	s.requests = append(s.requests, *r)
	return s
}

func (s *spans) Attempt(a *trace.Attempt) trace.AttemptSpan {
	s.attempts = append(s.attempts, *a)
	return (*attemptSpan)(s)
}

func (s *spans) Waited(what string, began time.Time, took time.Duration) {
	s.waits = append(s.waits, fmt.Sprintf("%s %v %v", what, time.Since(began), took))
}
func (s *spans) End(e *trace.End) { s.ends = append(s.ends, *e) }
func (s *spans) TraceID() string  { return traceID }
func (s *spans) Recorded() bool   { return !s.notRecorded }

type attemptSpan spans

func (s *attemptSpan) Context() (parent, state string, ok bool) { return "", "", false }
func (s *attemptSpan) Done(d *trace.AttemptEnd)                 { s.done = append(s.done, *d) }
