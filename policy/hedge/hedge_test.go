package hedge

import (
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]After{
		"off": {}, "OFF": {}, "p50": {Percent: 50}, "p95": {Percent: 95}, "p99": {Percent: 99},
		"1ms": {Fixed: time.Millisecond}, "50ms": {Fixed: 50 * time.Millisecond}, "10m": {Fixed: 10 * time.Minute},
	} {
		h, err := Parse(text)
		if err != nil || h != want {
			t.Errorf("%s: %+v, %v", text, h, err)
		}
		if again, err := Parse(h.String()); err != nil || again != h {
			t.Errorf("%s: %s is read as %+v, %v", text, h, again, err)
		}
		if h.Off() != (strings.EqualFold(text, "off")) || h.Fixed != want.Fixed || (New(h) == nil) != h.Off() {
			t.Errorf("%s: off %v, fixed %v", text, h.Off(), h.Fixed)
		}
	}
	for text, says := range map[string]string{
		"": "neither", "95": "neither", "p": "not within p50", "p49": "not within p50", "p100": "not within p50", "p-1": "not within", "p95.5": "not within", "P95": "neither",
		"999us": "not within 1ms", "10m1s": "not within 1ms", "-5ms": "not within", "0s": "not within", "on": "neither",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want an error that says %q", text, err, says)
		}
	}
}

func TestAfterWhatWasLearnt(t *testing.T) {
	if h := New(After{Fixed: time.Second}); h.After(0) != time.Second {
		t.Errorf("fixed: %v", h.After(0))
	} else {
		h.Learn(time.Hour, true)
		h.Learn(time.Hour, false)
	}
	h := New(After{Percent: 95})
	if d := h.After(0); d != 0 {
		t.Errorf("%v of nothing", d)
	}
	for range 200 {
		h.Learn(100*time.Microsecond, true)
	}
	if d := h.After(time.Minute); d != Least {
		t.Errorf("after %v, want no less than %v", d, Least)
	}
	for range 100 {
		h.Learn(time.Second, false)
	}
	if d := h.After(time.Hour); d < time.Second {
		t.Errorf("after %v: what was overtaken is not counted", d)
	}
}

func TestASlowAttemptIsLateByWhatIsLearntAndTenSeconds(t *testing.T) {
	h, now := New(SlowAttempt()), time.Duration(0)
	if got := h.After(now); got != SlowAfter {
		t.Errorf("with nothing learnt: %v, want %v", got, SlowAfter)
	}
	learn := func(d time.Duration) time.Duration {
		for range 20_000 {
			h.Learn(d, true)
		}
		now += time.Minute
		h.After(now)
		now += time.Minute
		return h.After(now)
	}
	if got := learn(100 * time.Millisecond); got != SlowAfter {
		t.Errorf("where responses take 100ms: %v, want %v", got, SlowAfter)
	}
	if got := learn(20 * time.Second); got < 20*time.Second || got > 23*time.Second {
		t.Errorf("where responses take 20s: %v, want that", got)
	}
}
