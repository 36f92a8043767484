package page

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/policy/breaker"
)

// All queues count, those of upstreams that are not shown too.
func TestQueuedRequestsAreSummed(t *testing.T) {
	s := newStage()
	for i := range maxUpstreams + 2 {
		s.upstreams = append(s.upstreams, metrics.Upstream{
			Name: strings.Repeat("u", i+1), Guard: breaker.GuardState{Queued: 2}, LongestWait: time.Duration(i) * time.Second,
		})
	}
	s.process.RateLimited, s.process.Paused = Queue{Requests: 5, LongestMS: 99_000}, 3
	state := s.State(s.now)
	if want := (Queue{Requests: 2*(maxUpstreams+2) + 5 + 3, LongestMS: 99_000}); state.Queued != want {
		t.Errorf("%+v, expected %+v", state.Queued, want)
	}
	s.process.RateLimited = Queue{}
	if got := s.State(s.now).Queued.LongestMS; got != (maxUpstreams+1)*1000 {
		t.Errorf("the longest waits for %d ms", got)
	}
	if u := state.Upstreams[3]; u.Waiting != 2 || u.LongestMS != 3000 {
		t.Errorf("%+v", u)
	}
}

func TestHostIsBoundedAndPrintable(t *testing.T) {
	for name, want := range map[string]string{
		"":                       "",
		"shop-7f9c":              "shop-7f9c",
		"a<b>&\"":                "a<b>&\"", // the page shows text, never markup
		"a\n\x1b[2J\x00b":        "a ?[2J?b",
		"a\xffb":                 "a?b",
		strings.Repeat("h", 300): strings.Repeat("h", maxHost-3) + "…",
	} {
		p := New(Options{Host: name, Metrics: metrics.New(metrics.Options{}), Process: func() Process { return Process{} }, Upstreams: func() []metrics.Upstream { return nil }})
		if got := p.State(noon).Host; got != want || !utf8.ValidString(got) {
			t.Errorf("%q: %q, expected %q", name, got, want)
		}
	}
}
