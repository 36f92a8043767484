package proxy

import (
	"bytes"
	"math"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/retryproxy/retryproxy/policy"
)

// trailLength bounds the attempts remembered for a log line; the first ones
// and the last are kept.
const trailLength = 8

// trail is what happened to a request, attempt by attempt, for the logs.
type trail struct {
	steps [trailLength]step
	n     int
}

type step struct {
	began  time.Duration // since the request did
	took   time.Duration
	wait   micros // after it
	status int16
	cause  policy.Cause
	class  policy.Class
}

// micros is a time in microseconds, up to 71 minutes, in half the room of a
// time.Duration: every connection has room for its request's steps.
type micros uint32

func inMicros(d time.Duration) micros { return micros(min(max(d.Microseconds(), 0), math.MaxUint32)) }

func (t *trail) reset() { t.n = 0 }

// attempted adds an attempt that began, and took, so long after the request did.
func (t *trail) attempted(began, took time.Duration, status int, cause policy.Cause, class policy.Class) {
	if t.n < trailLength {
		t.n++
	}
	s := &t.steps[t.n-1] // written in place: a literal would be built elsewhere and copied
	s.began, s.took, s.wait = began, took, 0
	s.status, s.cause, s.class = int16(status), cause, class
}

func (t *trail) waited(d time.Duration) {
	if t.n > 0 {
		t.steps[t.n-1].wait = inMicros(d)
	}
}

// MarshalLogArray writes the attempts as objects: status or cause, class, ms, wait_ms.
func (t *trail) MarshalLogArray(enc zapcore.ArrayEncoder) error {
	for i := range t.steps[:t.n] {
		if err := enc.AppendObject(&t.steps[i]); err != nil {
			return err
		}
	}
	return nil
}

// MarshalLogObject writes one attempt.
func (s *step) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	if s.status > 0 {
		enc.AddInt16("status", s.status)
	} else {
		enc.AddString("cause", s.cause.String())
	}
	enc.AddString("class", s.class.String())
	enc.AddInt64("ms", s.took.Milliseconds())
	if s.wait > 0 {
		enc.AddUint32("wait_ms", uint32(s.wait)/1000)
	}
	return nil
}

// lineLimit lets the first lines of each minute through and counts the others.
type lineLimit struct {
	perMinute int

	mu         sync.Mutex // guards all below
	minute     int64
	lines      int
	suppressed int
}

// allow says whether a line may be written now, and how many were suppressed
// in the minute before, once.
func (l *lineLimit) allow(now time.Time) (ok bool, suppressed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := now.Unix() / 60; m != l.minute {
		suppressed = l.suppressed
		l.minute, l.lines, l.suppressed = m, 0, 0
	}
	if l.lines >= l.perMinute {
		l.suppressed++
		return false, suppressed
	}
	l.lines++
	return true, suppressed
}

// logDone writes the access log's line, and one for a request given up.
func (x *exchange) logDone(code int, o policy.Outcome, took time.Duration) {
	if x.set.AccessLog {
		x.logRequest(x.set.Log.Info, "request", code, o, took)
	}
	if !worthALine(o) {
		return
	}
	ok, suppressed := x.route.gaveUpLog.allow(time.Now())
	if suppressed > 0 {
		x.set.Log.Warn("more requests given up, lines suppressed", zap.String("route", x.route.Name), zap.Int("count", suppressed))
	}
	if ok {
		x.logRequest(x.set.Log.Warn, "request given up", code, o, took)
	}
}

// worthALine says whether an outcome is one that its caller will complain of.
func worthALine(o policy.Outcome) bool {
	switch o {
	case policy.OutcomeResponseBroken, policy.OutcomeShed, policy.OutcomeHoldDropped, policy.OutcomeHoldTimeout, policy.OutcomeOverloaded,
		policy.OutcomeCooldown, policy.OutcomeThrottled, policy.OutcomeQuota, policy.OutcomeFallback:
		return true
	}
	return o.GaveUp()
}

// loggedPath bounds what a line shows of a path, in bytes: a head may be of 64 KiB.
const loggedPath = 1 << 10

// logRequest writes a line without anything secret: the query is left out.
func (x *exchange) logRequest(write func(string, ...zap.Field), msg string, code int, o policy.Outcome, took time.Duration) {
	target := x.req.Path
	if len(target) > loggedPath {
		target = append(bytes.Clone(target[:loggedPath]), "..."...)
	}
	if x.req.HasQuery {
		target = append(bytes.Clone(target), "?..."...)
	}
	write(msg,
		zap.String("route", x.route.Name),
		zap.ByteString("method", x.req.Method),
		zap.ByteString("path", target),
		zap.Int("status", code),
		zap.Stringer("outcome", o),
		zap.Duration("took", took),
		zap.Array("attempts", &x.trail),
		zap.String("peer", x.c.peer.Text),
		zap.ByteString("request_id", x.id),
		zap.String("reason", x.reason),
	)
}
