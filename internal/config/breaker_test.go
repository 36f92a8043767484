package config

import (
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
)

func TestTheSettingsOfTheBreakerAreThoseOfItsGuard(t *testing.T) {
	var (
		connect = []breaker.EndKind{breaker.Refused, breaker.DialFailed, breaker.Dropped}
		timeout = []breaker.EndKind{breaker.TimedOut, breaker.Abandoned}
		all     = append(append([]breaker.EndKind{breaker.Reset}, connect...), timeout...)
	)
	for text, want := range map[string]breaker.Failures{
		"auto":                   {},
		"503":                    breaker.NewFailures(all, 503),
		"500,gateway-error":      breaker.NewFailures(all, 500, 502, 503, 504),
		"429,gateway-error,!503": breaker.NewFailures(all, 429, 502, 504),
		"503,connect-failure":    breaker.NewFailures(connect, 503),
		"reset, 503":             breaker.NewFailures([]breaker.EndKind{breaker.Reset}, 503),
		"attempt-timeout":        breaker.NewFailures(timeout),
	} {
		if got := mustLoad(t, "RETRYPROXY_BREAKER_ON="+text).Default.Guard().On; got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
	on := mustLoad(t, "RETRYPROXY_BREAKER_ON=5xx").Default.Guard().On
	for status, want := range map[int]bool{200: false, 429: false, 500: true, 501: false, 503: true, 505: false, 511: false, 520: true, 599: true} {
		if got := on.Has(breaker.AttemptEnd{Kind: breaker.Responded, Status: status}); got != want {
			t.Errorf("5xx has %d: %v", status, got)
		}
	}
	for text, want := range map[string]int{"auto": 0, "1": 1, "1000000": 1000000} {
		if got := mustLoad(t, "RETRYPROXY_BREAKER_AFTER="+text).Default.Guard().After; got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
	for text, want := range map[string]backoff.Strategy{
		"auto":                     nil,
		"slots:base=10ms:slots=10": backoff.Slots{Slot: 10 * time.Millisecond, Max: 32 * time.Second, Ceiling: 10},
		"fixed:base=1s":            backoff.Fixed{Base: time.Second},
	} {
		if got := mustLoad(t, "RETRYPROXY_BREAKER_BACKOFF="+text).Default.Guard().Backoff; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

func TestEveryStrategyCanPaceTheProbes(t *testing.T) {
	for _, name := range backoff.Strategies() {
		if b := mustLoad(t, "RETRYPROXY_BREAKER_BACKOFF="+name+":extra=1ms").Default.Guard().Backoff; b == nil {
			t.Errorf("%s: none", name)
		}
	}
}

func TestARouteHasABreakerOfItsOwn(t *testing.T) {
	s := mustLoad(t, "RETRYPROXY_ROUTES=a", "RETRYPROXY_ROUTE_A_PATH=/a", "RETRYPROXY_BREAKER_AFTER=5",
		"RETRYPROXY_ROUTE_A_BREAKER_AFTER=1", "RETRYPROXY_ROUTE_A_BREAKER_ON=5xx", "RETRYPROXY_ROUTE_A_BREAKER_BACKOFF=slots", "RETRYPROXY_ROUTE_A_QUEUE_ORDER=oldest")
	if a, d := s.Routes[0].Guard(), s.Default.Guard(); a.After != 1 || d.After != 5 || a.On == d.On || a.Backoff == nil || d.Backoff != nil {
		t.Errorf("route %+v, default %+v", a, d)
	}
	c, err := Build(s)
	if err != nil || !c.Routes[0].QueueOldest || c.Default.QueueOldest {
		t.Errorf("%v, oldest first: %v, default %v", err, c.Routes[0].QueueOldest, c.Default.QueueOldest)
	}
}

func TestWrongSettingsOfTheBreakerSayWhatIsExpected(t *testing.T) {
	const on = "; expected statuses from 400 to 599, ranges such as 500-504, 5xx (without 501, 505, 511), gateway-error (502-504), !code to except one, connect-failure, reset and attempt-timeout, separated by commas, or auto"
	const backoffs = "; expected auto, or one of additive, decorrelated, equal-jitter, fixed, full-jitter, normal, proportional, ratio, slots, and its options, such as slots:base=10ms:slots=10"
	for variable, want := range map[string]string{
		"BREAKER_ON=none":                 `"none" is not one of these failures` + on,
		"BREAKER_ON=5xx,":                 `"" is not one of these failures; commas separate the entries; did you mean 5xx?`,
		"BREAKER_ON=5xx,rate-limited":     `"rate-limited" is not one of these failures; did you mean 5xx,429? Expected statuses`,
		"BREAKER_ON=grpc-unavailable":     `"grpc-unavailable" is not one of these failures` + on,
		"BREAKER_ON=5xx,302":              "the status 302 is not a failure; failures begin at 400" + on,
		"BREAKER_ON=600":                  `"600" is not within 200 to 599` + on,
		"BREAKER_ON=503,!503":             "503 is both listed and excluded" + on,
		"BREAKER_AFTER=0":                 "expected a whole number from 1 to 1000000, or auto",
		"BREAKER_AFTER=many":              "expected a whole number from 1 to 1000000, or auto",
		"BREAKER_BACKOFF=never":           `"never" is not the name of a strategy` + backoffs,
		"BREAKER_BACKOFF=slots:base=soon": "slots: base=soon: expected a duration above 0 with its unit, such as 250ms, 10s or 2m" + backoffs,
		"BREAKER_BACKOFF=slots:base":      "slots:base: expected NAME:option=value" + backoffs,
		"BREAKER_BACKOFF=fixed:slots=3":   "slots=3: the strategy fixed has no such option; its options are base, extra" + backoffs,
		"BREAKER_BACKOFF=none":            "none would send probes without a pause" + backoffs,
		"QUEUE_ORDER=random":              "expected one of newest, oldest",
	} {
		name, value, _ := strings.Cut(variable, "=")
		wantLines(t, problemsOf(minimal, "RETRYPROXY_"+variable), "RETRYPROXY_"+name+`="`+value+`": `+want)
	}
	for _, variable := range []string{"BREAKER_ON=5xx", "BREAKER_AFTER=1", "BREAKER_BACKOFF=slots"} {
		wantLines(t, problemsOf(minimal, "RETRYPROXY_BREAKER=off", "RETRYPROXY_"+variable), "has no effect: RETRYPROXY_BREAKER=off turns the circuit breaker off")
	}
}

// Who waits with PROFILE=batch waits at an open breaker for as long as the request may take.
func TestBatchWaitsAtTheBreakerForAsLongAsARequestMayTake(t *testing.T) {
	for environ, want := range map[string]time.Duration{"": 180 * time.Second, "RETRYPROXY_REQUEST_TIMEOUT=170s": 170 * time.Second, "RETRYPROXY_QUEUE_TIMEOUT=5s": 5 * time.Second} {
		list := []string{"RETRYPROXY_PROFILE=batch"}
		if environ != "" {
			list = append(list, environ)
		}
		if got := mustLoad(t, list...).Default.QueueTimeout; got != want {
			t.Errorf("%s: %v, want %v", environ, got, want)
		}
	}
}
