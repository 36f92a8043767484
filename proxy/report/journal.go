package report

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// keep passes the request to the journal, if the journal wants it.
func (p *Report) keep(code int, o policy.Outcome, now clock.Instant, took time.Duration) {
	j := p.Request.Settings.Journal
	if j == nil || !j.Wants(p.Request.Process.Clock.UnixNano(now), took, o) {
		return
	}
	e := settings.Ended{
		Route: p.Request.Route.Name, Method: p.Request.HTTP.Method, Path: p.Request.HTTP.Path, RequestID: p.Request.ID, Began: p.Request.Process.Clock.At(p.Request.Began), Took: took,
		Code: code, Outcome: o, Attempts: p.Request.Attempts, Steps: make([]settings.Step, 0, trailLength),
	}
	for _, s := range p.AttemptLog.steps[:p.AttemptLog.n] {
		e.Steps = append(e.Steps, settings.Step{Began: s.Began.duration(), Took: s.Took.duration(), Status: int(s.Status), Cause: s.Cause, Class: s.class, Addr: s.Addr, Dial: s.Dial})
	}
	j.Keep(&e)
}
