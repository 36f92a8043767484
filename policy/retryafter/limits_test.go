package retryafter

import (
	"net/http"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

var limitsNow = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// limitsOf reads headers, names and values in turn.
func limitsOf(headers ...string) (all []ratelimit.Reading) {
	l := Limits{Now: limitsNow}
	for i := 0; i+1 < len(headers); i += 2 {
		l.Add([]byte(headers[i]), []byte(headers[i+1]))
	}
	for i := range limitRows {
		if r, ok := l.Each(i); ok {
			all = append(all, r)
		}
	}
	return all
}

func TestLimitsOfEachRow(t *testing.T) {
	for i, row := range limitRows {
		got := limitsOf(row.Limit, "100", row.Remaining, "40", row.Reset, "30")
		if i == structuredRow {
			got = limitsOf("RateLimit-Policy", `"a";q=100;w=60`, "RateLimit", `"a";r=40;t=30`)
		}
		want := ratelimit.Reading{Row: uint8(i), Kind: row.Kind, Model: row.Model, Limit: 100, Remaining: 40, Reset: 30 * time.Second}
		if len(got) != 1 || got[0] != want {
			t.Errorf("%s: %+v, want %+v", row.Remaining, got, want)
		}
		if row.Source == "" {
			t.Errorf("%s has no source", row.Remaining)
		}
	}
}

func TestLimitsOfVendors(t *testing.T) {
	openAI := limitsOf("x-ratelimit-limit-requests", "60", "x-ratelimit-remaining-requests", "59", "x-ratelimit-reset-requests", "1s",
		"x-ratelimit-limit-tokens", "150000", "x-ratelimit-remaining-tokens", "149984", "x-ratelimit-reset-tokens", "6m0s")
	if len(openAI) != 2 || openAI[1].Reset != 6*time.Minute || openAI[1].Kind != ratelimit.Tokens || openAI[1].Model != ratelimit.Refilling {
		t.Errorf("OpenAI: %+v", openAI)
	}
	anthropic := limitsOf("Anthropic-Ratelimit-Input-Tokens-Limit", "50000", "Anthropic-Ratelimit-Input-Tokens-Remaining", "20000", "Anthropic-Ratelimit-Input-Tokens-Reset", "2026-03-01T12:00:36Z")
	if len(anthropic) != 1 || anthropic[0].Reset != 36*time.Second || anthropic[0].Kind != ratelimit.InputTokens {
		t.Errorf("Anthropic: %+v", anthropic)
	}
	github := limitsOf("X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "4987", "X-RateLimit-Reset", "1772366400") // 12:00
	if len(github) != 1 || github[0].Reset != 0 || github[0].Model != ratelimit.Windowed {
		t.Errorf("GitHub: %+v", github)
	}
	two := limitsOf("RateLimit-Policy", `"burst";q=100;w=60,"daily";q=1000;w=86400`, "RateLimit", `"daily";r=900;t=36000, "burst";r=5;t=20`)
	if len(two) != 1 || two[0].Limit != 100 || two[0].Remaining != 5 || two[0].Reset != 20*time.Second {
		t.Errorf("RateLimit: %+v", two)
	}
	renewed := limitsOf("RateLimit-Policy", `"burst";q=100;w=60,"daily";q=1000;w=86400`, "RateLimit", `"burst";r=0;t=0, "daily";r=900;t=36000`)
	if len(renewed) != 1 || renewed[0].Limit != 1000 || renewed[0].Reset != 10*time.Hour {
		t.Errorf("RateLimit with one that is renewed: %+v", renewed)
	}
	if old := limitsOf("RateLimit", "limit=100, remaining=50, reset=50"); len(old) != 1 || old[0].Remaining != 50 {
		t.Errorf("draft 7: %+v", old)
	}
	if old := limitsOf("RateLimit-Limit", "100, 100;w=60", "RateLimit-Remaining", "50", "RateLimit-Reset", "50"); len(old) != 1 || old[0].Limit != 100 {
		t.Errorf("draft 3: %+v", old)
	}
}

// A reset that is 0, now or past, in every form and by every clock, is a reset of 0.
func TestAResetThatIsOverIsZero(t *testing.T) {
	l := []string{"0", "0.0", "0s", "0ms", "1772366400", "1772366399", "1772366400000", "1", "2026-03-01T12:00:00Z", "2026-03-01T11:59:59.9Z", "2026-03-01 12:00:00+00:00",
		"Sun, 01 Mar 2026 12:00:00 GMT", "1000000000", "1000000000000"}
	for _, value := range l {
		want := time.Duration(0)
		if value == "1" {
			want = time.Second
		}
		got := limitsOf("X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", value)
		if len(got) != 1 || got[0].Reset != want {
			t.Errorf("%s: %+v", value, got)
		}
	}
}

func TestLimitsThatCannotBeRead(t *testing.T) {
	for _, headers := range [][]string{
		{"X-RateLimit-Limit", "-5", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "1"},
		{"X-RateLimit-Limit", "0", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1"},
		{"X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "1", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "1"},
		{"X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "NaN", "X-RateLimit-Reset", "1"},
		{"X-RateLimit-Limit", "1e9", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "1"},
		{"X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "1"},
		{"RateLimit", `"a";r=1;t=1`},
		{"RateLimit-Policy", `"a";q=1;w=1`, "RateLimit", `"a";r=1;t=1;`},
	} {
		if got := limitsOf(headers...); len(got) != 0 {
			t.Errorf("%q: %+v", headers, got)
		}
	}
	if got := limitsOf("X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "100", "X-RateLimit-Reset", "1"); len(got) != 1 || got[0].Remaining != 5 {
		t.Errorf("more left than the limit: %+v", got)
	}
}

// FuzzLimits reads arbitrary headers; the results are within their ranges.
func FuzzLimits(f *testing.F) {
	for i, r := range limitRows {
		f.Add(uint8(i), "100", "7", "30")
		f.Add(uint8(i), r.Remaining, "1e400", "2026-03-01T12:00:30Z")
	}
	f.Add(uint8(structuredRow), `"a";q=10;w=5`, `"a";r=4;t=2`, "")
	f.Fuzz(func(t *testing.T, row uint8, limit, remaining, reset string) {
		r := limitRows[int(row)%len(limitRows)]
		if r.Limit == "" {
			r.Limit, r.Reset = "RateLimit-Policy", "Date"
		}
		l := Limits{Now: limitsNow, Date: []byte(limitsNow.Format(http.TimeFormat))}
		for name, value := range map[string]string{r.Limit: limit, r.Remaining: remaining, r.Reset: reset} {
			l.Add([]byte(name), []byte(value))
		}
		for i := range limitRows {
			if got, ok := l.Each(i); ok && (got.Limit <= 0 || got.Remaining < 0 || got.Remaining > got.Limit || got.Reset < 0) {
				t.Fatalf("%+v", got)
			}
		}
	})
}
