package demo

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
)

// someReport has a number of every kind.
func someReport() *report {
	r := &report{elapsed: 12340 * time.Millisecond, sends: [numSides]uint64{100, 112}}
	for s := range numSides {
		var c tally
		for k := range numKinds {
			for range 1 + int(k)*int(1+s) {
				c.add(k, 1234*time.Millisecond)
			}
		}
		r.sides[s] = c.counts
	}
	r.routes = []routeCounts{
		{"search", 15, map[string]int{"success": 8, "recovered": 1, "gave_up_budget_exhausted": 1}, map[string]int{"status_503": 4, "reset": 1}},
		{"checkout", 3, map[string]int{"success": 1, "gave_up_not_idempotent": 2}, map[string]int{}},
	}
	return r
}

func TestLiveTable(t *testing.T) {
	want := strings.TrimPrefix(`
12.3 s           requests   success   429   502   503 reset other     p50     p99
without retries        21     4.8 %     2     3     4     5     6  1.27 s  1.27 s
with retryproxy        36     2.8 %     3     5     7     9    11  1.27 s  1.27 s

route            requests   success recovered   gave up   retries  attempts
search                 10         8         1         1         5        15
checkout                3         1         0         2         0         3
`, "\n")
	if got := someReport().live(style{}); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestFinalTables(t *testing.T) {
	got := someReport().final(style{})
	for _, want := range []string{
		"The upstream got 100 requests without retries and 112 with retryproxy: 1.12 times as many.\n",
		"requests                                    10         3\n",
		"  success                                    8         1\n  recovered                                  1         0\n",
		"  gave_up_not_idempotent                     0         2\n",
		"attempts                                    15         3\n",
		"retries                                      5         0\n  because of reset                           1         0\n  because of status_503                      4         0\n",
		"    2  not_idempotent: A retry might",
		"    1  budget_exhausted: The retry budget",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	for _, absent := range []string{"deadline", "upgraded", "\x1b"} {
		if strings.Contains(got, absent) {
			t.Errorf("%q is in\n%s", absent, got)
		}
	}
}

func TestFinalWithoutFailuresExplainsNone(t *testing.T) {
	r := &report{routes: []routeCounts{{name: "search", outcomes: map[string]int{"success": 1}}}}
	if got := r.final(style{}); strings.Contains(got, "Why") {
		t.Errorf("explains nothing:\n%s", got)
	}
}

func TestProgressIsALineWhereThereIsNoTerminal(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out, func(string) string { return "" })
	s.progress(someReport())
	s.finish(someReport())
	want := "  12 s  success   4.8 % without retries,   2.8 % with retryproxy (36 requests each, 5 retries)\n\nWhat clients saw\n"
	if !strings.HasPrefix(out.String(), want) || strings.Contains(out.String(), "\x1b") {
		t.Errorf("got %q", out.String())
	}
}

func TestTheTableIsRedrawnInPlace(t *testing.T) {
	var out bytes.Buffer
	s := &screen{out: &out, live: true}
	r := someReport()
	s.progress(r)
	if strings.Contains(out.String(), "F\x1b[J") {
		t.Error("something was erased before anything was drawn")
	}
	out.Reset()
	r.routes = r.routes[:1]
	s.progress(r)
	if !strings.HasPrefix(out.String(), "\x1b[7F\x1b[J\x1b[?7l12.3 s") || !strings.HasSuffix(out.String(), "\n\x1b[?7h") {
		t.Errorf("redrawn as %q", out.String())
	}
	out.Reset()
	s.finish(r)
	if !strings.HasPrefix(out.String(), "\x1b[6F\x1b[JWhat clients saw") {
		t.Errorf("finished as %q", out.String())
	}
}

func TestLookObeysTheEnvironment(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0) // the master of a new one
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	for _, c := range []struct {
		name        string
		env         map[string]string
		live, color bool
	}{
		{"plain", nil, true, true},
		{"NO_COLOR", map[string]string{"NO_COLOR": "1"}, true, false},
		{"TERM=dumb", map[string]string{"TERM": "dumb"}, false, false},
	} {
		s := newScreen(terminal, func(name string) string { return c.env[name] })
		if s.live != c.live || s.style.color != c.color {
			t.Errorf("%s: live %v, color %v; want %v, %v", c.name, s.live, s.style.color, c.live, c.color)
		}
	}
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if s := newScreen(file, func(string) string { return "" }); s.live || s.style.color {
		t.Error("a file was taken for a terminal")
	}
}

func TestColoursOnlyWhenAsked(t *testing.T) {
	if got := someReport().live(style{color: true}); !strings.Contains(got, "\x1b[32mwith retryproxy") {
		t.Errorf("no colour in %q", got)
	}
	if got := someReport().live(style{}); strings.Contains(got, "\x1b") {
		t.Errorf("a colour in %q", got)
	}
}

func TestLatenciesAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0.0 ms", 900 * time.Microsecond: "0.9 ms", 9 * time.Millisecond: "9.0 ms",
		307 * time.Millisecond: "307 ms", 1090 * time.Millisecond: "1.09 s", time.Minute: "60.00 s",
	} {
		if got := short(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
