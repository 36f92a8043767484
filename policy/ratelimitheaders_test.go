package policy

import (
	"strings"
	"testing"
	"time"
)

// rateLimitHeaders reads fields of the form "Name: value", one a line.
func rateLimitHeaders(head string) *RateLimitHeaders {
	var q RateLimitHeaders
	for line := range strings.SplitSeq(head, "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			q.Add([]byte(strings.TrimSpace(name)), []byte(value))
		}
	}
	return &q
}

func TestRateLimitHeaders(t *testing.T) {
	const date = "Sun, 01 Mar 2026 12:00:00 GMT" // 1772366400
	for _, tc := range []struct {
		name, head, date string
		want             time.Duration
		silent           bool
	}{
		{name: "structured", head: `RateLimit: "default";r=0;t=30`, want: 30 * time.Second},
		{name: "structured, rate limit left", head: `RateLimit: "default";r=1;t=30`, silent: true},
		{name: "structured, no count", head: `RateLimit: "default";t=30`, silent: true},
		{name: "structured token", head: `RateLimit: default;r=0;t=30`, want: 30 * time.Second},
		{name: "name in another case", head: `rATElIMIT: "a";r=0;t=3`, want: 3 * time.Second},
		{name: "longest of those used up", head: `RateLimit: "burst";r=0;t=3, "day";r=0;t=60, "hour";r=7;t=900`, want: time.Minute},
		{name: "longest of those used up comes first", head: `RateLimit: "day";r=0;t=60, "burst";r=0;t=3`, want: time.Minute},
		{name: "over two lines", head: "RateLimit: \"burst\";r=0;t=3\nRateLimit: \"day\";r=0;t=60", want: time.Minute},
		{name: "other parameters", head: `RateLimit: "a";pk=:dXNlcg==:;r=0;x="q;\"";y=?1;z=1.5;n=-7;tok=a/b;bare;t=9`, want: 9 * time.Second},
		{name: "the last of a name counts", head: `RateLimit: "a";r=5;r=0;t=1;t=2`, want: 2 * time.Second},
		{name: "renewed at once", head: `RateLimit: "a";r=0;t=0`, want: 0},
		{name: "largest integer", head: `RateLimit: "a";r=0;t=999999999999999`, want: Forever},
		{name: "window of the policy", head: "RateLimit: \"a\";r=0\nRateLimit-Policy: \"b\";q=1;w=9, \"a\";q=10;w=60", want: time.Minute},
		{name: "t goes before the window", head: "RateLimit: \"a\";r=0;t=5\nRateLimit-Policy: \"a\";q=10;w=60", want: 5 * time.Second},
		{name: "window of another policy", head: "RateLimit: \"a\";r=0\nRateLimit-Policy: \"b\";q=10;w=60", silent: true},
		{name: "policy alone", head: `RateLimit-Policy: "a";q=0;w=60;r=0;t=5`, silent: true},
		{name: "malformed policy", head: "RateLimit: \"a\";r=0\nRateLimit-Policy: \"a\";w=60,", silent: true},
		{name: "fraction", head: `RateLimit: "a";r=0;t=1.5`, silent: true},
		{name: "negative time", head: `RateLimit: "a";r=0;t=-5`, silent: true},
		{name: "negative count", head: `RateLimit: "a";r=-1;t=5`, silent: true},
		{name: "too many digits", head: `RateLimit: "a";r=0;t=1234567890123456`, silent: true},
		{name: "one bad member spoils the field", head: `RateLimit: "a";r=0;t=5, (1 2)`, silent: true},
		{name: "bad second line", head: "RateLimit: \"a\";r=0;t=5\nRateLimit: ;", silent: true},
		{name: "trailing comma", head: `RateLimit: "a";r=0;t=5,`, silent: true},
		{name: "no comma", head: `RateLimit: "a";r=0;t=5 "b"`, silent: true},
		{name: "upper-case key", head: `RateLimit: "a";R=0;t=5`, silent: true},
		{name: "open quote", head: `RateLimit: "a;r=0;t=5`, silent: true},
		{name: "five lines", head: strings.Repeat("RateLimit: \"a\";r=0;t=5\n", 5), silent: true},
		{name: "empty", head: "RateLimit:", silent: true},

		{name: "draft 7", head: `RateLimit: limit=100, remaining=0, reset=50`, want: 50 * time.Second},
		{name: "draft 7, rate limit left", head: `RateLimit: limit=100, remaining=5, reset=50`, silent: true},
		{name: "draft 7 without remaining", head: `RateLimit: limit=100, reset=50`, silent: true},
		{name: "draft 7 without reset", head: `RateLimit: limit=100, remaining=0`, silent: true},

		{name: "older names", head: "RateLimit-Limit: 10\nRateLimit-Remaining: 0\nRateLimit-Reset: 7", want: 7 * time.Second},
		{name: "older names, rate limit left", head: "RateLimit-Remaining: 2\nRateLimit-Reset: 7", silent: true},
		{name: "older names with a moment", head: "RateLimit-Remaining: 0\nRateLimit-Reset: 1772366460", date: date, want: time.Minute},
		{name: "no remaining", head: "RateLimit-Reset: 7", silent: true},
		{name: "no reset", head: "RateLimit-Remaining: 0", silent: true},
		{name: "two resets", head: "RateLimit-Remaining: 0\nRateLimit-Reset: 7\nRateLimit-Reset: 8", silent: true},
		{name: "two rate limits in one", head: "RateLimit-Remaining: 0, 5\nRateLimit-Reset: 7", silent: true},

		{name: "X, seconds from now", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 60", want: time.Minute},
		{name: "X, a moment", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772366430", date: date, want: 30 * time.Second},
		{name: "X, a moment without Date", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772366430", want: 30 * time.Second},
		{name: "X, a moment by a skewed clock", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1583064030",
			date: "Sun, 01 Mar 2020 12:00:00 GMT", want: 30 * time.Second},
		{name: "X, a moment that is over", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772366400", want: 0},
		{name: "X, last that is seconds from now", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 999999999", want: 999999999 * time.Second},
		{name: "X, first that is a moment", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1000000000", want: 0},
		{name: "X, milliseconds since 1970", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772366430000", silent: true},
		{name: "X, fraction goes up", head: "X-RateLimit-Remaining: 0.0\nX-RateLimit-Reset: 1.001", want: 2 * time.Second},
		{name: "X, less than one left is not none", head: "X-RateLimit-Remaining: 0.5\nX-RateLimit-Reset: 3", silent: true},
		{name: "X, the other spelling", head: "x-rate-limit-remaining: 0\nx-rate-limit-reset: 3", want: 3 * time.Second},
		{name: "X, a date", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: Sun, 01 Mar 2026 12:00:30 GMT", silent: true},
		{name: "X, negative", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: -5", silent: true},
		{name: "X, empty", head: "X-RateLimit-Remaining:\nX-RateLimit-Reset:", silent: true},
		{name: "X, point without digits", head: "X-RateLimit-Remaining: 0.\nX-RateLimit-Reset: 5", silent: true},
		{name: "X, unknown suffix", head: "X-RateLimit: 0\nX-RateLimit-Policy: 1\nX-RateLimit-Resets: 3", silent: true},

		{name: "structured goes before X", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 60\nRateLimit: \"a\";r=0;t=5", want: 5 * time.Second},
		{name: "X where structured has rate limit left", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 60\nRateLimit: \"a\";r=9;t=5", want: time.Minute},
		{name: "nothing", head: "Content-Length: 5\nX-Rate: 0\nRate: 5", silent: true},
	} {
		got, ok := rateLimitHeaders(tc.head).Wait([]byte(tc.date), someDay)
		if ok == tc.silent || got != tc.want {
			t.Errorf("%s: %v, %v; want %v", tc.name, got, ok, tc.want)
		}
	}
}

func TestRateLimitHeadersDoNotAllocate(t *testing.T) {
	names := [][]byte{[]byte("RateLimit"), []byte("RateLimit-Policy"), []byte("X-RateLimit-Remaining"), []byte("X-RateLimit-Reset")}
	values := [][]byte{[]byte(`"a";r=0`), []byte(`"a";q=10;w=60`), []byte("0"), []byte("1772366430")}
	n := testing.AllocsPerRun(100, func() {
		var q RateLimitHeaders
		for i := range names {
			q.Add(names[i], values[i])
		}
		if d, ok := q.Wait(nil, someDay); !ok || d != time.Minute {
			t.Fatal(d, ok)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Whatever an upstream sends: no panic, no negative wait, and none at all
// without a 0 somewhere.
func FuzzRateLimitHeaders(f *testing.F) {
	for _, head := range []string{
		`RateLimit: "a";r=0;t=30`, "RateLimit: a;r=0\nRateLimit-Policy: a;w=5", "RateLimit: limit=1, remaining=0, reset=5",
		"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772366430", "RateLimit-Remaining: 0.0\nRateLimit-Reset: 1.5",
		`RateLimit: "a\"";r=0;t=1;pk=:YQ==:;x=?0, "b";r=0;t=2`,
	} {
		f.Add(head, "Sun, 01 Mar 2026 12:00:00 GMT", int64(1772366400))
	}
	f.Fuzz(func(t *testing.T, head, date string, unix int64) {
		d, ok := rateLimitHeaders(head).Wait([]byte(date), time.Unix(unix, 0))
		if d < 0 || !ok && d != 0 {
			t.Errorf("%v, %v", d, ok)
		}
		if ok && !strings.Contains(head, "0") {
			t.Errorf("%v though no count is 0", d)
		}
		again, _ := rateLimitHeaders(head+"\n").Wait([]byte(date), time.Unix(unix, 0))
		if again != d {
			t.Errorf("%v, then %v", d, again)
		}
	})
}
