package compose

import (
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/deploy/test/engine"
)

// series is Prometheus's answer to a query at one time.
type series struct {
	Status string
	Data   struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
}

func query(expression string) string { return "/api/v1/query?query=" + url.QueryEscape(expression) }

// counts asks Prometheus for counters by the labels, in the form of the
// example's tallies ("GET 200"), zeros left out.
func (s *stack) counts(t *testing.T, expression string, labels ...string) map[string]int64 {
	t.Helper()
	var got series
	s.ask(t, http.MethodGet, "prometheus", query("sum by ("+strings.Join(labels, ",")+") ("+expression+")"), &got)
	all := map[string]int64{}
	for _, r := range got.Data.Result {
		var values []string
		for _, l := range labels {
			values = append(values, r.Metric[l])
		}
		text, _ := r.Value[1].(string)
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("%s: %v", expression, err)
		}
		if n != 0 {
			all[strings.Join(values, " ")] = int64(n)
		}
	}
	return all
}

func (s *stack) awaitCount(t *testing.T, expression string) {
	t.Helper()
	engine.Await(t, expression, func() bool { return len(s.counts(t, expression)) > 0 })
}

// awaitSame waits for Prometheus's next look, which has to find what the
// example counted itself.
func awaitSame(t *testing.T, what string, want map[string]int64, ask func() map[string]int64) {
	t.Helper()
	var got map[string]int64
	defer func() {
		if t.Failed() {
			t.Logf("%s\nPrometheus: %v\ncounted:    %v", what, got, want)
		}
	}()
	engine.Await(t, "agreement about "+what, func() bool {
		got = ask()
		return len(want) > 0 && maps.Equal(got, want)
	})
}

// frontCountsAgree compares what clients saw with the inbound sidecars'
// counters, and what the application saw with the outbound one's.
func (s *stack) frontCountsAgree(t *testing.T) {
	saw := s.clients(t, http.MethodPost, "/pause")
	if saw.Unanswered != 0 {
		t.Errorf("%d requests had no response", saw.Unanswered)
	}
	answered := map[string]int64{}
	for k, n := range saw.Answered {
		answered[strings.Replace(k, "POST+key", "POST", 1)] += n
	}
	awaitSame(t, "requests of the clients", answered, func() map[string]int64 {
		return s.counts(t, `retryproxy_requests_total{job="inbound"}`, "method", "code")
	})
	var app struct {
		Asked      map[string]int64
		Unanswered int64
	}
	s.ask(t, http.MethodGet, "app", "/stats", &app)
	if app.Unanswered != 0 {
		t.Errorf("%d requests of the application had no response", app.Unanswered)
	}
	awaitSame(t, "requests of the application", app.Asked, func() map[string]int64 {
		return s.counts(t, `retryproxy_requests_total{job="outbound"}`, "method", "code")
	})
	requests, outcomes := s.counts(t, "retryproxy_requests_total", "job"), s.counts(t, "retryproxy_outcomes_total", "job")
	if !maps.Equal(requests, outcomes) {
		t.Errorf("requests %v, outcomes %v", requests, outcomes)
	}
}

// countsAgree does so down to the upstream, which has not lost its counts yet.
// Among them are retries, as it fails now and then.
func (s *stack) countsAgree(t *testing.T) {
	s.awaitCount(t, `sum(retryproxy_outcomes_total{job="outbound", outcome="recovered"}) > 4`)
	s.frontCountsAgree(t)
	var upstream struct{ Answered map[string]int64 }
	s.ask(t, http.MethodGet, "upstream", "/stats", &upstream)
	codes := map[string]int64{}
	for k, n := range upstream.Answered {
		_, code, _ := strings.Cut(k, " ")
		if code == "0" {
			code = "other" // a reset
		}
		codes[code] += n
	}
	t.Logf("attempts by class and code: %v", s.counts(t, `retryproxy_attempts_total{job="outbound"}`, "class", "code"))
	awaitSame(t, "attempts that the upstream can have seen", codes, func() map[string]int64 {
		return s.counts(t, `retryproxy_attempts_total{job="outbound", class!="not_sent"}`, "code")
	})
}

func (s *stack) rulesAreLoaded(t *testing.T) {
	var got struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	engine.Await(t, "evaluation of the rules", func() bool {
		s.ask(t, http.MethodGet, "prometheus", "/api/v1/rules", &got)
		for _, g := range got.Data.Groups {
			for _, r := range g.Rules {
				if r.Health == "err" {
					t.Fatalf("%s: %s", r.Name, r.LastError)
				}
				if r.Health != "ok" {
					return false
				}
			}
		}
		return len(got.Data.Groups) > 0
	})
}
