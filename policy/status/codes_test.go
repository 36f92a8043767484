package status

import (
	"fmt"
	"testing"
)

func TestCodesKeepWhatWasAdded(t *testing.T) {
	var s Codes
	s.Add(Run{First: 200, Last: 206})
	s.Add(GatewayErrors)
	s.Add(Run{First: 599, Last: 599})
	s.Remove(Run{First: 203, Last: 204})
	if got := fmt.Sprint(s.Runs()); got != "[200-202 205-206 502-504 599]" || s.Count() != 9 {
		t.Error(got, s.Count())
	}
	for _, code := range []int{-1, 0, 199, 203, 501, 505, 600, 1 << 40} {
		if s.Has(code) {
			t.Error(code, "is in the set")
		}
	}
	var other Codes
	other.Add(Run{First: 502, Last: 502})
	if both := s.With(&other); both != s {
		t.Error("a set with a part of it is", both.Runs())
	}
	if less := s.Without(&other); less.Has(502) || !less.Has(503) || less.Empty() {
		t.Error("without 502 it is", less.Runs())
	}
	if none := s.Without(&s); !none.Empty() {
		t.Error("a set without itself is", none.Runs())
	}
}

func TestAGatewaySaysThatTheApplicationDidNotAnswer(t *testing.T) {
	for code := 400; code <= 599; code++ {
		if want := code == 502 || code == 503 || code == 504; GatewayErrors.Has(code) != want {
			t.Error(code, !want)
		}
	}
}

func TestParseCode(t *testing.T) {
	for text, want := range map[string]int{"200": 200, "099": 99, "20": -1, "2000": -1, "2x0": -1, "+20": -1, "": -1} {
		if got := ParseCode(text); got != want {
			t.Errorf("%q is %d, want %d", text, got, want)
		}
	}
}

func TestHealthy(t *testing.T) {
	for code, want := range map[int]bool{199: false, 200: true, 301: true, 401: true, 404: true, 429: false, 499: true, 500: false, 503: false} {
		if Healthy(code) != want {
			t.Error(code, !want)
		}
	}
}
