package exchange

import (
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/budget"
	hedging "github.com/retryproxy/retryproxy/policy/hedge"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/trace"
)

// hedged sends a hedge after 100 ms.
func hedged(_ *served, c *settings.Config) {
	after, err := hedging.Parse("100ms")
	if err != nil {
		panic(err)
	}
	c.Default.HedgeAfter = after
}

func TestHedges(t *testing.T) {
	const s = time.Second
	runAll(t, []example{
		{"not needed", hedged, get(), []step{{50 * time.Millisecond, ok200}},
			"0s GET /a, ok 200 after 50ms, 50ms done 200 success 1",
			got(200, "ok", 1)},
		{"not for what is unsafe", hedged, with("POST", "body"), []step{{s, ok200}},
			"0s POST /a body, ok 200 after 1s, 1s done 200 success 1",
			got(200, "ok", 1)},
		{"wins", hedged, with("PUT", "body"), []step{{time.Minute, closes}, {s, answer(200, "hedge")}},
			"0s PUT /a body, 100ms PUT /a body, overtaken 0 after 1.1s, hedged, hedge won, ok 200 after 1s, 1.1s done 200 success 2",
			got(200, "hedge", 2)},
		{"loses", hedged, get(), []step{{s, ok200}, {time.Minute}},
			"0s GET /a, 100ms GET /a, hedged, overtaken 0 after 900ms, ok 200 after 1s, 1s done 200 success 2",
			got(200, "ok", 2)},
		{"is refused", hedged, get(), []step{{s, ok200}, {refuses}},
			"0s GET /a, 100ms refused, not_sent 0 after 0s, ok 200 after 1s, 1s done 200 success 2",
			got(200, "ok", 2)},
		{"is still dialled", hedged, get(), []step{{s, ok200}, {hangs}},
			"0s GET /a, ok 200 after 1s, 1s done 200 success 1",
			got(200, "ok", 1)},
		{"fails first", hedged, get(), []step{{2 * s, ok200}, {s, answer(503, "busy")}},
			"0s GET /a, 100ms GET /a, hedged, unknown 503 after 1s, ok 200 after 2s, 2s done 200 success 2",
			got(200, "ok", 2)},
		{"is lost first", hedged, get(), []step{{2 * s, ok200}, {s, closes}},
			"0s GET /a, 100ms GET /a, hedged, unknown 0 after 1s, ok 200 after 2s, 2s done 200 success 2",
			got(200, "ok", 2)},
		{"wins after the first failed", hedged, get(), []step{{s, answer(503, "busy")}, {2 * s, ok200}},
			"0s GET /a, 100ms GET /a, unknown 503 after 1s, hedged, hedge won, ok 200 after 2s, 2.1s done 200 recovered 2",
			got(200, "ok", 2)},
		{"wins after the first was lost", hedged, get(), []step{{s, closes}, {2 * s, ok200}},
			"0s GET /a, 100ms GET /a, unknown 0 after 1s, hedged, hedge won, ok 200 after 2s, 2.1s done 200 recovered 2",
			got(200, "ok", 2)},
		{"both fail", hedged, get(), []step{{s, closes}, {2 * s, answer(503, "busy")}, {ok200}},
			"0s GET /a, 100ms GET /a, unknown 0 after 1s, hedged, unknown 503 after 2s, waited 1s, retry status_503, 3.1s GET /a, ok 200 after 0s, 3.1s done 200 recovered 3",
			got(200, "ok", 3)},
		{"both fail, the first with a response", hedged, get(), []step{{s, answer(503, "busy")}, {2 * s, closes}, {ok200}},
			"0s GET /a, 100ms GET /a, hedged, unknown 0 after 2s, unknown 503 after 1s, waited 1s, retry status_503, 3.1s GET /a, ok 200 after 0s, 3.1s done 200 recovered 3",
			got(200, "ok", 3)},
		{"both time out", hedged, get(), []step{{time.Minute}, {time.Minute}, {ok200}},
			"0s GET /a, 100ms GET /a, hedged, unknown 0 after 10s, unknown 0 after 10.1s, waited 1s, retry attempt_timeout, 11.1s GET /a, ok 200 after 0s, 11.1s done 200 recovered 3",
			got(200, "ok", 3)},
		{"a retry has one too", hedged, get(), []step{{closes}, {2 * s, ok200}, {s, answer(200, "hedge")}},
			"0s GET /a, unknown 0 after 0s, waited 1s, retry reset, 1s GET /a, 1.1s GET /a, overtaken 0 after 1.1s, hedged, hedge won, ok 200 after 1s, 2.1s done 200 recovered 3",
			got(200, "hedge", 3)},
		{"the first times out and goes on", func(s *served, c *settings.Config) {
			hedged(s, c)
			c.Default.Policy.MaxRetries = 1
		}, get(), []step{{12 * s, ok200}, {s, closes}},
			"0s GET /a, 100ms GET /a, hedged, unknown 0 after 1s, ok 200 after 12s, 12s done 200 success 2",
			got(200, "ok", 2)},
		{"wins with a stream that has no content yet", func(s *served, c *settings.Config) {
			hedged(s, c)
			c.Default.FirstContentTimeout = 5 * time.Second
		}, get(), []step{{time.Minute, closes}, {s, "HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nContent-Length: 7\r\n\r\n", s, "data: \n"}},
			"0s GET /a, 100ms GET /a, overtaken 0 after 1.1s, hedged, hedge won, ok 200 after 2s, 2.1s done 200 success 2",
			"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nContent-Length: 7\r\nX-Retryproxy-Attempts: 2\r\n\r\ndata: \n"},
		{"no retry is left", func(s *served, c *settings.Config) {
			hedged(s, c)
			c.Default.Policy.MaxRetries = 0
		}, get(), []step{{s, ok200}},
			"0s GET /a, ok 200 after 1s, 1s done 200 success 1",
			got(200, "ok", 1)},
	})
}

// guarded has a breaker that two failures in a row open.
func guarded(s *served, c *settings.Config) {
	hedged(s, c)
	c.Default.Guard = breaker.Options{After: 2}
}

// The upstream works on an attempt whose hedge won as long as on one whose client left, so its permit counts
// as that of an abandoned one.
func TestThePermitOfAHedgesLoserIsAbandoned(t *testing.T) {
	inMemory(t, []step{{time.Minute}, {time.Second, ok200}, {time.Minute}, {time.Second, ok200}, {time.Minute}, {time.Second, ok200}}, guarded, func(s *served) {
		for range 3 {
			s.serve(get())
		}
		g := s.guard()
		if g.Breaker != breaker.Closed || g.InFlight != 3 || g.Abandoned != 3 {
			s.Errorf("%+v", g)
		}
	})
}

// A hedge that lost is abandoned likewise, one that was never sent holds no permit.
func TestAHedgeThatLostIsAbandoned(t *testing.T) {
	inMemory(t, []step{{time.Second, ok200}, {time.Minute}, {time.Second, ok200}, {refuses}}, guarded, func(s *served) {
		s.serve(get())
		if g := s.guard(); g.InFlight != 1 || g.Abandoned != 1 {
			s.Errorf("%+v", g)
		}
		s.serve(get())
		if g := s.guard(); g.InFlight != 1 || g.Abandoned != 1 || g.Breaker != breaker.Closed {
			s.Errorf("%+v", g)
		}
	})
}

// A hedge is sent only if it may be of use, and if retries are made at all.
func TestNoHedge(t *testing.T) {
	const s = time.Second
	runAll(t, []example{
		{"a part of the response has come", hedged, get(), []step{{s / 20, "HTTP/1.1 2", s, strings.TrimPrefix(ok200, "HTTP/1.1 2")}},
			"0s GET /a, ok 200 after 1.05s, 1.05s done 200 success 1",
			got(200, "ok", 1)},
		{"an informational response has come", hedged, get(), []step{{s / 20, "HTTP/1.1 103 X\r\n\r\n", s, ok200}, {s, ok200}},
			"0s GET /a, 100ms GET /a, hedged, overtaken 0 after 950ms, ok 200 after 1.05s, 1.05s done 200 success 2",
			"HTTP/1.1 103 X\r\n\r\n" + got(200, "ok", 2)},
		{"the body is not whole", all(hedged, then(s, "body")), message("PUT", "Content-Length: 8") + "\r\nbody", []step{{s / 20, ok200}},
			"1s PUT /a bodybody, ok 200 after 1.05s, 1.05s done 200 success 1",
			got(200, "ok", 1)},
		{"an upgrade", hedged, upgrade(""), []step{{s, answer(426, "no")}},
			"0s GET /a, ok 426 after 1s, 1s done 426 success 1",
			got(426, "no", 1)},
		{"the budget is used up", all(hedged, withBudget(budget.Config{})), get(), []step{{s, ok200}},
			"0s GET /a, ok 200 after 1s, 1s done 200 success 1",
			got(200, "ok", 1)},
	})
}

// A retry that the operator has switched off is not made, and neither is a hedge.
func TestRetriesAreSwitchedOff(t *testing.T) {
	off := func(steps ...step) (story, client string) {
		inMemory(t, steps, hedged, func(s *served) {
			s.process.SetRetryPercent(0)
			s.serve(get())
			story, client = strings.Join(s.story, ", "), s.client.String()
		})
		return
	}
	if story, client := off(step{time.Second, answer(503, "busy")}); story != "0s GET /a, unknown 503 after 1s, 1s done 503 gave_up_switched_off 1" || client != got(503, "busy", 1, because("switched_off")) {
		t.Errorf("%s\n%q", story, client)
	}
}

// What retries added to a request's time is counted from when its first attempt failed, and the span of that
// attempt ends then, too.
func TestAnAttemptEndsWhenItFailsAndNotWithItsHedge(t *testing.T) {
	var spans spans
	inMemory(t, []step{{time.Second, closes}, {2 * time.Second, ok200}}, func(s *served, c *settings.Config) {
		hedged(s, c)
		c.Tracer = &spans
	}, func(s *served) {
		began := time.Now()
		s.serve(get())
		if s.added != 1100*time.Millisecond {
			s.Errorf("%v were added", s.added)
		}
		if len(spans.ends) != 2 || spans.ends[0].Sub(began) != time.Second || spans.ends[1].Sub(began) != 2100*time.Millisecond {
			s.Errorf("the attempts ended at %v, the request began at %v", spans.ends, began)
		}
	})
}

// spans is a Tracer that notes when attempts end.
type spans struct{ ends []time.Time }

func (s *spans) Request(*trace.Request) trace.RequestSpan { return s }
func (s *spans) Attempt(*trace.Attempt) trace.AttemptSpan { return s }
func (s *spans) Waited(string, time.Time, time.Duration)  {}
func (s *spans) End(*trace.End)                           {}
func (s *spans) TraceID() string                          { return "" }
func (s *spans) Recorded() bool                           { return false }
func (s *spans) Context() (parent, state string, ok bool) { return "", "", false }
func (s *spans) Done(d *trace.AttemptEnd)                 { s.ends = append(s.ends, d.At) }
