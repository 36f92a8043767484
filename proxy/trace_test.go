package proxy

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/trace"
)

// attemptsTraced is a Tracer that remembers what is said of attempts.
type attemptsTraced struct {
	mu  sync.Mutex
	all []trace.Attempt

	notRecorded bool
}

func (t *attemptsTraced) Request(*trace.Request) trace.RequestSpan { return t }

func (t *attemptsTraced) Attempt(a *trace.Attempt) trace.AttemptSpan {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, *a)
	return nil
}

func (*attemptsTraced) TraceID() string                         { return "0af7651916cd43dd8448eb211c80319c" }
func (t *attemptsTraced) Recorded() bool                        { return !t.notRecorded }
func (*attemptsTraced) Waited(string, time.Time, time.Duration) {}
func (*attemptsTraced) End(*trace.End)                          {}

// The retry reason of an untraced request does not appear in the next request's trace.
func TestAFirstAttemptIsTracedAsNoRetry(t *testing.T) {
	var first Config
	p := startProxy(t, startUpstream(t, script(bad503, ok200)), func(c *Config) { first = *c })
	c := p.dial().send(get("/"))
	c.want(200, "ok")
	traced, next := &attemptsTraced{}, first
	next.Tracer = traced
	if err := p.Reload(&next); err != nil {
		t.Fatal(err)
	}
	c.send(get("/")).want(200, "ok")
	traced.mu.Lock()
	defer traced.mu.Unlock()
	if len(traced.all) != 1 || traced.all[0].Why != policy.ReasonNone || traced.all[0].Wait != 0 {
		t.Errorf("traced: %+v", traced.all)
	}
}

// The observer gets the trace ID of a request whose trace is recorded, and of no other.
func TestTheObserverGetsRecordedTraces(t *testing.T) {
	const id = "0af7651916cd43dd8448eb211c80319c"
	for name, tt := range map[string]struct {
		tracer trace.Tracer
		want   []string
	}{
		"recorded":     {&attemptsTraced{}, []string{id + " 200"}},
		"not recorded": {&attemptsTraced{notRecorded: true}, nil},
		"no tracing":   {nil, nil},
	} {
		p := startProxy(t, startUpstream(t, script(bad503, ok200)), func(c *Config) { c.Tracer = tt.tracer })
		p.dial().send(get("/")).want(200, "ok")
		p.seen.outcome(t, 0)
		p.stop()
		if !slices.Equal(p.seen.traced, tt.want) {
			t.Errorf("%s: %q", name, p.seen.traced)
		}
	}
}
