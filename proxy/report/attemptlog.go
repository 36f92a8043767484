package report

import (
	"math"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// trailLength bounds the attempts that are remembered for a log line: the first ones and the last.
const trailLength = 8

// attemptLog is what happened to a request, attempt by attempt, for the logs.
type attemptLog struct {
	steps [trailLength]step
	n     int
}

type step struct {
	Began  micros // since the request did
	Took   micros
	wait   micros // after it
	Status int16
	Cause  policy.Cause
	class  policy.Class
	Addr   string              // of the endpoint; "" if none was chosen
	Dial   *upstream.DialError // nil unless the attempt found no connection
}

// micros is a time in microseconds, up to 71 minutes. It takes half the memory of a time.Duration;
// every connection has room for the steps of its request.
type micros uint32

func (m micros) duration() time.Duration { return time.Duration(m) * time.Microsecond }

func inMicros(d time.Duration) micros { return micros(min(max(d.Microseconds(), 0), math.MaxUint32)) }

func (t *attemptLog) reset() { t.n = 0 }

// attempted adds an attempt.
func (t *attemptLog) attempted(s step) {
	if t.n < trailLength {
		t.n++
	}
	t.steps[t.n-1] = s
}

func (t *attemptLog) Waited(d time.Duration) {
	if t.n > 0 {
		t.steps[t.n-1].wait = inMicros(d)
	}
}

// MarshalLogArray writes the attempts as objects: the endpoint's address, status or
// cause (of a failed connection also its kind and error), class, duration_seconds,
// and wait_seconds if a wait followed.
func (t *attemptLog) MarshalLogArray(enc zapcore.ArrayEncoder) error {
	for i := range t.steps[:t.n] {
		if err := enc.AppendObject(&t.steps[i]); err != nil {
			return err
		}
	}
	return nil
}

// MarshalLogObject writes one attempt.
func (s *step) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	if s.Addr != "" {
		enc.AddString("address", s.Addr)
	}
	if s.Status > 0 {
		enc.AddInt16("status", s.Status)
	} else {
		enc.AddString("cause", s.Cause.String())
	}
	if s.Dial != nil {
		enc.AddString("kind", s.Dial.Kind.String())
		enc.AddString("error", s.Dial.Text())
	}
	enc.AddString("class", s.class.String())
	enc.AddDuration("duration_seconds", s.Took.duration())
	if s.wait > 0 {
		enc.AddDuration("wait_seconds", s.wait.duration())
	}
	return nil
}
