package exchange

import (
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// faulty panics when something happens.
type faulty struct {
	observer
	at string
}

func (f faulty) WaitEnded(time.Duration) { f.happened("waited") }
func (f faulty) Hedged()                 { f.happened("a hedge ended") }
func (f faulty) HedgeWon()               { f.happened("a hedge won") }
func (f faulty) AttemptDone(policy.Class, int, time.Duration) {
	f.happened("an attempt ended")
}

func (f faulty) happened(what string) {
	if f.at == what {
		panic("a fault of the test")
	}
}

// After a fault of the proxy itself, nothing of the request is left, and it has its one outcome.
func TestAFaultLeavesNothingBehind(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		at    string
		steps []step
		story string
	}{
		{"waited", []step{{answer(503, "busy")}}, "0s done 0 response_broken 1"},
		{"an attempt ended", []step{{time.Minute}, {s, ok200}}, "1.1s done 0 response_broken 1"},
		{"an attempt ended", []step{{2 * s, ok200}, {s, answer(503, "busy")}}, "2s done 0 response_broken 2"},
		{"a hedge ended", []step{{time.Minute}, {s, ok200}}, "1.1s done 0 response_broken 1"},
		{"a hedge ended", []step{{s, ok200}, {time.Minute}}, "1s done 0 response_broken 1"},
		{"a hedge won", []step{{time.Minute}, {s, ok200}}, "1.1s done 0 response_broken 2"},
	} {
		inMemory(t, c.steps, func(s *served, c2 *settings.Config) {
			guarded(s, c2)
			waits(0)(s, c2)
			c2.Observe = func(string) func() settings.Observer {
				return func() settings.Observer { return faulty{observer{s: s}, c.at} }
			}
		}, func(s *served) {
			func() {
				defer func() {
					if recover() == nil {
						s.Error("there was no fault")
					}
				}()
				s.serve(get())
			}()
			if !s.x.EndAfterFault() || s.x.EndAfterFault() {
				s.Error("the request did not end once")
			}
			if last := s.story[len(s.story)-1]; last != c.story || !s.x.MustReset() {
				s.Errorf("%q; a reset: %v", last, s.x.MustReset())
			}
			s.conn.EndRequest()
		})
	}
}

// Request headers that are refused, or do not come in time, have a response and an outcome too.
func TestRequestsThatDoNotBegin(t *testing.T) {
	for _, c := range []struct{ end, story, status, reason string }{
		{"refused", "0s done 431 refused 0", "HTTP/1.1 431 ", "header_too_large"},
		{"too slow", "0s done 408 request_timeout 0", "HTTP/1.1 408 ", "request_timeout"},
	} {
		inMemory(t, nil, nil, func(s *served) {
			s.x.Begin(s.settings, s.process.Clock.Now())
			if c.end == "refused" {
				s.x.RefuseHeaders(http1.RefusalHeadersTooLarge)
			} else {
				s.x.HeadersTimedOut()
			}
			got := s.client.String()
			for _, part := range []string{c.status, because(c.reason) + "\r\n", "\r\nConnection: close\r\n"} {
				if !strings.Contains(got, part) {
					s.Errorf("%s: without %q: %q", c.end, part, got)
				}
			}
			s.wants(c.story, got)
		})
	}
}
