package proxy

import (
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
}

func (t *attemptsTraced) Request(*trace.Request) trace.RequestSpan { return t }

func (t *attemptsTraced) Attempt(a *trace.Attempt) trace.AttemptSpan {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, *a)
	return nil
}

func (*attemptsTraced) TraceID() string                         { return "" }
func (*attemptsTraced) Recorded() bool                          { return false }
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
