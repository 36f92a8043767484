package policy

import (
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/policy/status"
)

// headers is a HeaderLookup for tests; names are lower case.
type headers map[string]string

// usualRetryOn is the default of RETRYPROXY_RETRY_ON.
const usualRetryOn = "5xx,429,connect-failure,reset,attempt-timeout"

func (f headers) Lookup(name string) ([]byte, bool) {
	v, ok := f[strings.ToLower(name)]
	return []byte(v), ok
}

func mustRetryOn(t testing.TB, s string) RetryOn {
	t.Helper()
	r, err := ParseRetryOn(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRetryOnStatuses(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		yes, no  []int
	}{
		{"default", usualRetryOn, []int{429, 500, 502, 503, 504, 506, 510, 512, 520, 599}, []int{200, 304, 400, 404, 408, 428, 430, 499, 501, 505, 511, 600, 0, -1, 100}},
		{"a listed code beats the gap in 5xx", "5xx,501", []int{500, 501}, []int{505, 511}},
		{"the order has no meaning", "501,5xx", []int{500, 501}, []int{505, 511}},
		{"exclusion from a group", "5xx,!503", []int{500, 502, 504}, []int{503}},
		{"exclusion named first", "!503,5xx", []int{500, 502, 504}, []int{503}},
		{"excluded range", "5xx,!520-529", []int{519, 530}, []int{520, 525, 529}},
		{"a range is explicit", "500-505", []int{500, 501, 505}, []int{499, 506}},
		{"gateway-error", "gateway-error", []int{502, 503, 504}, []int{500, 501, 505}},
		{"ends of what can be listed", "200,599", []int{200, 599}, []int{199, 201, 598, 600}},
		{"none", "none", nil, []int{429, 500, 503}},
		{"zero value", "", nil, []int{429, 500, 503}},
		{"no status at all", "reset", nil, []int{429, 500, 503}},
	} {
		var r RetryOn
		if tc.in != "" {
			r = mustRetryOn(t, tc.in)
		}
		for _, c := range tc.yes {
			if !r.matches(&Result{Status: c}) || !r.Code(c) {
				t.Errorf("%s: %d is not a failure", tc.name, c)
			}
		}
		for _, c := range tc.no {
			if r.matches(&Result{Status: c}) || r.Code(c) {
				t.Errorf("%s: %d is a failure", tc.name, c)
			}
		}
	}
}

// A 403 counts as a 429 if the setting has the word and the response says that a rate limit is exhausted.
func TestAForbiddenRateLimitCountsAs429(t *testing.T) {
	yes, no := func() bool { return true }, func() bool { return false }
	for _, tc := range []struct {
		in     string
		status int
		limits func() bool
		want   int
	}{
		{"rate-limited", 403, yes, 429},
		{"rate-limited", 403, no, 403},
		{"rate-limited", 404, yes, 404},
		{"rate-limited", 503, yes, 503},
		{"rate-limited,!403", 403, yes, 403},
		{"rate-limited,403", 403, yes, 429},
		{usualRetryOn, 403, yes, 403},
		{"403", 403, yes, 403},
	} {
		r := mustRetryOn(t, tc.in)
		if got := r.CountsAs(tc.status, tc.limits); got != tc.want {
			t.Errorf("%s: %d counts as %d, want %d", tc.in, tc.status, got, tc.want)
		}
	}
	r := mustRetryOn(t, "rate-limited")
	if !r.Code(429) || r.Code(403) {
		t.Error("rate-limited lists 429 and not 403")
	}
}

func TestRetryOnCauses(t *testing.T) {
	governs := map[string][]Cause{
		"connect-failure": {CauseDial, CauseTLS, CauseUntrusted, CauseIdleClose, CauseRefusedStream},
		"reset":           {CauseReset, CauseMalformed, CauseHeadersTooLarge},
		"attempt-timeout": {CauseAttemptTimeout},
		"none":            {},
		"5xx":             {CauseStatus},
		usualRetryOn:      allCauses(),
	}
	for in, causes := range governs {
		r := mustRetryOn(t, in)
		for _, c := range allCauses() {
			want := false
			for _, g := range causes {
				want = want || g == c
			}
			if r.Cause(c) != want {
				t.Errorf("%s: Cause(%v) = %v", in, c, !want)
			}
			if c != CauseStatus && r.matches(&Result{Cause: c, Status: 500}) != want {
				t.Errorf("%s: matches %v = %v", in, c, !want)
			}
		}
	}
	r := mustRetryOn(t, usualRetryOn)
	if r.matches(&Result{Cause: numCauses}) {
		t.Error("a cause outside the set is listed")
	}
}

func TestRetryOnHeaders(t *testing.T) {
	r := mustRetryOn(t, "503,!404,retriable-header:X-Again,retriable-header:X-Mode=Later")
	for _, tc := range []struct {
		name   string
		status int
		header HeaderLookup
		want   bool
	}{
		{"no fields", 200, nil, false},
		{"field there", 200, headers{"x-again": ""}, true},
		{"other field", 200, headers{"x-mode": "now"}, false},
		{"field with the value", 200, headers{"x-mode": "Later"}, true},
		{"the case of a value counts", 200, headers{"x-mode": "later"}, false},
		{"status without field", 503, headers{}, true},
		{"an exclusion beats a field", 404, headers{"x-again": "1"}, false},
		{"status without look-up", 503, nil, true},
	} {
		if got := r.matches(&Result{Status: tc.status, Header: tc.header}); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
	if !r.Cause(CauseStatus) || r.Cause(CauseReset) {
		t.Error("Cause is wrong with fields")
	}
}

func TestHeaderNamesAreWhatTheLoopMustLookUp(t *testing.T) {
	r := mustRetryOn(t, "retriable-header:X-B=1,retriable-header:x-a,retriable-header:X-b=2,5xx")
	if got := strings.Join(r.HeaderNames(), " "); got != "x-b x-a" {
		t.Errorf("HeaderNames: %s", got)
	}
	r = mustRetryOn(t, usualRetryOn)
	if r.HeaderNames() != nil {
		t.Errorf("HeaderNames of the default: %v", r.HeaderNames())
	}
}

func TestRetryOnStringIsCanonical(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{usualRetryOn, "5xx,429,connect-failure,reset,attempt-timeout"},
		{" attempt-timeout , reset,429 ,connect-failure,5xx,5xx", "5xx,429,connect-failure,reset,attempt-timeout"},
		{"gateway-error", "502-504"},
		{"rate-limited", "rate-limited"},
		{"429,rate-limited,5xx,reset", "5xx,reset,rate-limited"},
		{"rate-limited,!403,428-430", "428,430,!403,rate-limited"},
		{"refused-stream,reset-before-request", "connect-failure"},
		{"retriable-4xx,envoy-ratelimited", "409,429"},
		{"unavailable,resource-exhausted,cancelled,deadline-exceeded,internal", "grpc-cancelled,grpc-deadline-exceeded,grpc-resource-exhausted,grpc-internal,grpc-unavailable"},
		{"500-504,503,505", "500-505"},
		{"5xx,!503", "5xx,!503"},
		{"5xx,501,511,!502-503", "5xx,501,511,!502-503"},
		{"5xx,!520-599", "500,502-504,506-510,512-519,!520-599"},
		{"429,!404", "429,!404"},
		{"none", "none"},
		{"!500", "none"},
		{"retriable-header:X-Again = 1 2", "retriable-header:x-again=1 2"},
		{"retriable-header:X-Again,!404", "!404,retriable-header:x-again"},
		{"5xx,!503,retriable-header:a", "5xx,!503,retriable-header:a"},
		{"500,502-504,506-510,512-597,599,retriable-header:a", "500,502-504,506-510,512-597,599,retriable-header:a"},
		{"500,502-504,506-510,512-597,599", "500,502-504,506-510,512-597,599"},
		{"5xx,!598", "5xx,!598"},
	} {
		r := mustRetryOn(t, tc.in)
		if r.String() != tc.want {
			t.Errorf("%q: %q, want %q", tc.in, r.String(), tc.want)
		}
		sameRetryOn(t, tc.in, r)
	}
}

// sameRetryOn checks that parsing String's result returns the same setting.
func sameRetryOn(t *testing.T, in string, r RetryOn) {
	t.Helper()
	again, err := ParseRetryOn(r.String())
	if err != nil {
		t.Fatalf("%q: its String %q: %v", in, r.String(), err)
	}
	if again.String() != r.String() || again.codes != r.codes || again.never != r.never ||
		again.connect != r.connect || again.reset != r.reset || again.timeout != r.timeout ||
		len(again.fields) != len(r.fields) {
		t.Fatalf("%q: written as %q, which means %q", in, r.String(), again.String())
	}
}

func TestParseRetryOnRefuses(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"nothing", "", "none"},
		{"blank", "  ", "none"},
		{"empty entry", "5xx,,429", "empty entry"},
		{"none with others", "none,5xx", "stand alone"},
		{"unknown word", "5xx,connect", `"connect"`},
		{"wrong case", "5XX", `"5XX"`},
		{"4xx", "4xx", "list single statuses"},
		{"1xx status", "101", "200 to 599"},
		{"too high", "600", "200 to 599"},
		{"range too high", "500-600", "200 to 599"},
		{"backwards", "504-500", "whose end comes first"},
		{"two digits", "50", `"50"`},
		{"four digits", "5000", `"5000"`},
		{"open range", "500-", `"500-"`},
		{"sign", "+50", `"+50"`},
		{"excluded group", "!5xx", `"!5xx"`},
		{"bare exclusion", "!", `"!"`},
		{"listed and excluded", "500-504,!502-503", "502-503 is both"},
		{"field without name", "retriable-header:", "not a header name"},
		{"field with a bad name", "retriable-header:a b", "not a header name"},
		{"field with an empty value", "retriable-header:a=", "not a header value"},
		{"field with a control byte", "retriable-header:a=\x01", "not a header value"},
		{"too many entries", strings.Repeat("500,", maxRetryOnItems) + "500", "at most"},
		{"too many fields", manyHeaders(maxRetryOnFields + 1), "at most"},
	} {
		r, err := ParseRetryOn(tc.in)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one that says %q", tc.name, err, tc.want)
		}
		if !r.codes.Empty() || r.connect {
			t.Errorf("%s: a setting came with the error", tc.name)
		}
	}
	if _, err := ParseRetryOn(manyHeaders(maxRetryOnFields)); err != nil {
		t.Errorf("%d fields: %v", maxRetryOnFields, err)
	}
}

func manyHeaders(n int) string {
	var items []string
	for i := range n {
		items = append(items, headerPrefix+"x"+strings.Repeat("y", i))
	}
	return strings.Join(items, ",")
}

func TestParseRetryOnNamesAllErrorsAtOnce(t *testing.T) {
	_, err := ParseRetryOn("5xx,foo,504-500,502,!502,retriable-header:=1")
	for _, want := range []string{`"foo"`, "whose end comes first", "502 is both", "not a header name"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
}

func FuzzRetryOn(f *testing.F) {
	for _, s := range []string{usualRetryOn, "none", "", "500-504,!502,501", "gateway-error,!503", "!404,retriable-header:X-A=b, reset",
		"5xx,!510-515,retriable-header:a", "200-599,!200-598", "retriable-header:a==", "5xx,!5xx", "-", "599-599,!200"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRetryOn(s)
		if err != nil {
			return
		}
		sameRetryOn(t, s, r)
		for c := range 1000 {
			if r.Code(c) && r.never.Has(c) || r.Code(c) && (c < status.MinCode || c > status.MaxCode) {
				t.Fatalf("%q: %d is a failure", s, c)
			}
		}
	})
}
