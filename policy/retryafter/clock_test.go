package retryafter

import (
	"testing"
	"time"
)

func TestCutClock(t *testing.T) {
	date := []byte("Sun, 01 Mar 2026 12:00:00 GMT")
	for text, want := range map[string]struct {
		d    time.Duration
		rest string
	}{
		"3pm (Europe/Berlin)": {3 * time.Hour, " (Europe/Berlin)"},
		"3 p.m.":              {3 * time.Hour, ""},
		"10:57 PM GMT-3.":     {13*time.Hour + 57*time.Minute, "."},
		"12am":                {12 * time.Hour, ""},
		"12:00 UTC":           {0, ""},
		"11:59:30 UTC":        {24*time.Hour - 30*time.Second, ""},
		"18:05 UTC+05:30":     {35 * time.Minute, ""},
		"9:00Z":               {21 * time.Hour, ""},
		"23:00 GMT+11":        {0, ""},
	} {
		d, rest, ok := CutClock([]byte(text), false, date, time.Time{})
		if !ok || d != want.d || string(rest) != want.rest {
			t.Errorf("%s: %v %q %v, want %v %q", text, d, rest, ok, want.d, want.rest)
		}
	}
	for _, text := range []string{"", "12", "1:02:03", "30 s", "30 apples", "123pm", "25:00 UTC", "12:60 UTC", "12:5x UTC", "3pmx", "pm"} {
		if d, _, ok := CutClock([]byte(text), false, date, time.Time{}); ok {
			t.Errorf("%q: %v", text, d)
		}
	}
	if d, _, ok := CutClock([]byte("14:30"), true, nil, time.Date(2026, 3, 1, 13, 0, 0, 0, time.FixedZone("", 3600))); !ok || d != 150*time.Minute {
		t.Errorf("a time for certain, by the local clock: %v %v", d, ok)
	}
	if _, _, ok := CutClock([]byte("14"), true, date, time.Time{}); ok {
		t.Error("an hour alone")
	}
}

func TestStartsDate(t *testing.T) {
	for _, text := range []string{"2026-03-01", "01 Mar 2026", "1 Mar 2026 ", "Sun, 01 Mar 2026", "Mar 1, 2026", "sun mar 01 2026"} {
		if !StartsDate([]byte(text)) {
			t.Error(text)
		}
	}
	for _, text := range []string{"", "2026-03-0", "20260-03-01", "12 seconds", "123 Mar 2026", "march along", "sunny days", "1.5 Mar 2026", "May5 be there"} {
		if StartsDate([]byte(text)) {
			t.Errorf("%q", text)
		}
	}
}
