package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestAttemptsAfterTheEnd holds what an attempt that comes late is taken for.
func TestAttemptsAfterTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		end  *ending // nil: not yet
		want string  // start of the violation; empty: none
		late int64
	}{
		"before the response":                {},
		"after a response that came soon":    {end: &ending{took: attemptTimeout / 2}, want: "attempt after the response"},
		"after a time-out of the proxy":      {end: &ending{took: attemptTimeout}, late: 1},
		"after its client left":              {end: &ending{left: true}},
		"behind the end of its connection":   {end: &ending{reply: "no response"}, want: "attempt after the response"},
		"after a time-out, of a left client": {end: &ending{left: true, took: attemptTimeout}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newSoak(1)
			e := l.open(newPlan(1, 7))
			if c.end != nil {
				l.close(e, *c.end)
			}
			_, _, known := l.arrived(7)
			got := strings.Join(l.All(), "\n")
			if known != (c.want == "") || !strings.HasPrefix(got, c.want) || c.want == "" && got != "" || l.Counted(readLate) != c.late {
				t.Errorf("known %v, late %d, said %q", known, l.Counted(readLate), got)
			}
		})
	}
}

func TestEndedRequestsAreForgotten(t *testing.T) {
	l := newSoak(1)
	l.close(l.open(newPlan(1, 7)), ending{left: true})
	l.ended[0].end.at = time.Now().Add(-2 * lingers)
	l.close(l.open(newPlan(1, 8)), ending{left: true})
	if len(l.records) != 1 || len(l.ended) != 1 {
		t.Errorf("%d requests remembered, %d of them ended", len(l.records), len(l.ended))
	}
	if _, _, known := l.arrived(7); known || !slices.Equal(l.Kinds(), []string{"attempt from nowhere"}) {
		t.Errorf("an attempt at a forgotten request: known %v, %v", known, l.All())
	}
}

func TestNoTwoAttemptsHaveOneNumber(t *testing.T) {
	l := newSoak(1)
	e := l.open(newPlan(1, 7))
	for n, c := range []struct {
		number int
		isNew  bool
	}{{2, true}, {1, true}, {2, false}} {
		l.arrived(7)
		if got := e.number(n, c.number); got != c.isNew {
			t.Errorf("number %d at attempt %d is new: %v", c.number, n, got)
		}
	}
}

// TestOnlyA429ExcusesAnotherAttempt holds when a request that may not be
// repeated may come to the upstream again.
func TestOnlyA429ExcusesAnotherAttempt(t *testing.T) {
	rejected, failed, reset := script{kind: responds, status: 429}, script{kind: responds, status: 503}, script{kind: resetsEarly, status: 429}
	for name, c := range map[string]struct {
		before  []script
		excused bool
	}{
		"the first attempt":      {excused: true},
		"after two 429":          {before: []script{rejected, rejected}, excused: true},
		"after 503":              {before: []script{failed}},
		"after 503 and then 429": {before: []script{failed, rejected}},
		"after a reset":          {before: []script{reset}},
	} {
		t.Run(name, func(t *testing.T) {
			e := &record{}
			for _, a := range c.before {
				e.attempts = append(e.attempts, attempt{script: a})
			}
			if got := e.rejectedBefore(len(c.before)); got != c.excused {
				t.Errorf("another attempt is excused: %v", got)
			}
		})
	}
}
