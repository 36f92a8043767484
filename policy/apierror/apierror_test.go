package apierror

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

var someDay = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// read reads body on someDay.
func read(l *List, body []byte) Verdict { return l.Read(body, nil, someDay) }

// Bodies as the vendors send them: testdata/<name>.json. If the source lists only an error code,
// the message is made up; nothing depends on it.
func TestBodiesOfVendors(t *testing.T) {
	const s, m, h = time.Second, time.Minute, time.Hour
	wait := func(d time.Duration) Verdict { return Verdict{Wait: d, HasWait: true} }
	exhausted := Verdict{Exhausted: true}
	cases := map[string]Verdict{
		"openai_rate_limit_seconds":      wait(18642 * time.Millisecond),
		"openai_rate_limit_milliseconds": wait(644 * time.Millisecond),
		"openai_rate_limit_minutes":      wait(m + 30*s),
		"openai_slow_down":               {},
		"openai_insufficient_quota":      exhausted,
		"openai_insufficient_quota_type": exhausted,
		"openai_credit_balance":          exhausted,
		"openai_project_spend_limit":     exhausted,
		"openai_billing_hard_limit":      exhausted,
		"openai_server_error":            {},

		"anthropic_rate_limit":     {},
		"anthropic_overloaded":     {},
		"anthropic_credit_balance": exhausted,
		"anthropic_usage_limits":   exhausted,
		"anthropic_spend_cap":      exhausted,
		"anthropic_billing_error":  exhausted,

		"gemini_per_minute":          wait(36429760048),
		"gemini_per_day":             wait(36429760048),
		"gemini_retry_info_alone":    wait(34074824224),
		"gemini_in_an_array":         wait(26 * s),
		"gemini_wrapped":             wait(26660853464),
		"google_billing_disabled":    exhausted,
		"google_daily_limit":         exhausted,
		"google_rate_limit_exceeded": {},
		"vertex_resource_exhausted":  {},
		"azure_openai_call_rate":     wait(6 * s),
		"azure_openai_token_rate":    wait(24 * h),
		"azure_openai_try_again":     wait(2 * s),
		"azure_insufficient_quota":   exhausted,
		"azure_out_of_call_volume":   wait(15 * 24 * h),
		"azure_apim_quota":           exhausted,
		"groq_tokens_per_day":        wait(9*m + 38016*time.Millisecond),
		"groq_tokens_per_minute":     wait(50597142857),
		"mistral_rate_limit":         {},
		"mistral_capacity":           {},
		"mistral_message_alone":      {},
		"xai_credits":                exhausted,
		"deepseek_balance":           exhausted,
		"moonshot_quota":             exhausted,
		"moonshot_rate_limit":        {},
		"zai_balance":                exhausted,
		"zhipu_balance":              exhausted,
		"zhipu_arrears":              exhausted,
		"alibaba_arrearage":          exhausted,
		"openrouter_credits":         exhausted,
		"huggingface_credits":        exhausted,
		"litellm_budget":             exhausted,
		"litellm_terminal":           exhausted,
		"discord_rate_limit":         wait(64570 * time.Millisecond),
		"gateway_html":               {},
	}
	for name, want := range cases {
		body, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(body) && name != "gateway_html" {
			t.Errorf("%s is no JSON", name)
		}
		if got := read(Usual(), body); !sameVerdict(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		var compact bytes.Buffer
		if json.Compact(&compact, body) == nil {
			if got := read(Usual(), compact.Bytes()); !sameVerdict(got, want) {
				t.Errorf("%s in one line: %+v, want %+v", name, got, want)
			}
		}
	}
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) != len(cases) {
		t.Errorf("%d files, %d cases, %v", len(files), len(cases), err)
	}
}

func TestEachEntryIsFound(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range Entries() {
		key := "code"
		if IsText(e.Sign) {
			key = "message"
		}
		for _, sign := range []string{e.Sign, strings.ToUpper(e.Sign)} {
			body := fmt.Appendf(nil, `{"error":{%q:%q}}`, key, sign)
			if !read(Usual(), body).Exhausted {
				t.Errorf("%s", body)
			}
		}
		if key == "code" && read(Usual(), fmt.Appendf(nil, `{"error":{"message":%q,"param":%q}}`, e.Sign, e.Sign)).Exhausted {
			t.Errorf("%s in a message or under another key", e.Sign)
		}
		if e.Vendor == "" || e.Source == "" || seen[lower(e.Sign)] {
			t.Errorf("%+v", e)
		}
		seen[lower(e.Sign)] = true
	}
}

func TestMessages(t *testing.T) {
	const s = time.Second
	for message, want := range map[string]time.Duration{
		"Please try again in 6.1s.":                           6100 * time.Millisecond,
		"try again in 88ms":                                   88 * time.Millisecond,
		"TRY AGAIN IN 1M30S":                                  90 * s,
		"Please retry after 6 seconds. Please go here: x":     6 * s,
		"Please retry in 1 hour and 5 minutes, 3 seconds":     time.Hour + 5*time.Minute + 3*s,
		"try again in 2 minutes 5 seconds":                    125 * s,
		"try again after 1d2h":                                26 * time.Hour,
		"please try again after an hour":                      time.Hour,
		"Please retry in 853.02µs":                            853020,
		"try again in 5s, or try again in 9s, or retry in 7s": 9 * s,
		"try again in 1,000 seconds":                          1000 * s,
		"try again in  6s":                                    6 * s,
		"try again in 0s":                                     0,
		"try again in five seconds":                           5 * s,
		"try again in a few minutes":                          2 * 60 * s,
		"try again in 2-3 minutes":                            3 * 60 * s,
		"try again in 20 to 30 seconds":                       30 * s,
		"try again in PT1M30S":                                90 * s,
		"try again in ~7s":                                    7 * s,
		"Retry after 2026-03-01T12:01:02.123Z (Mail sending)": 62123 * time.Millisecond,
		"Try again at Sun, 01 Mar 2026 12:00:30 GMT":          30 * s,
		"Resets at Sun Mar 01 2026 13:00:30 GMT+0100 (Central European Standard Time)": 30 * s,
		"try again in 20s. 5 minutes are long":                                         20 * s,
		"try again in 20s, 5 requests are left":                                        20 * s,
		"try again in 5 seconds 3 minutes":                                             5 * s, // growing units are two statements
		"try again in 99999999999999999999 days":                                       backoff.Forever,
		"try again in 106751 days and 99999999999999999999 milliseconds.":              backoff.Forever,
	} {
		body, err := json.Marshal(map[string]any{"error": map[string]any{"message": message}})
		if err != nil {
			t.Fatal(err)
		}
		if got := read(Usual(), body); !got.HasWait || got.Wait != want || got.Exhausted {
			t.Errorf("%s: %+v, want %v", message, got, want)
		}
	}
	for _, message := range []string{"", "Please try again later.", "try again in", "try again in ", "try again in 3 months", "try again in 5 apples",
		"try again in -5s", "try again in .5s", "try again in 5 seconds1", "in 6s", "try again in " + strings.Repeat("1", 100) + "s"} {
		body, err := json.Marshal(map[string]any{"error": map[string]any{"message": message}})
		if err != nil {
			t.Fatal(err)
		}
		if got := read(Usual(), body); got.HasWait && message != "try again in 5 seconds1" {
			t.Errorf("%q: %+v", message, got)
		}
	}
}

func TestStrangeBodies(t *testing.T) {
	const code = `"code":"insufficient_quota"`
	for name, tc := range map[string]struct {
		body string
		want Verdict
	}{
		"empty":                      {"", Verdict{}},
		"space":                      {" \r\n\t", Verdict{}},
		"a string":                   {`"insufficient_quota"`, Verdict{}},
		"a text":                     {"insufficient_quota: try again in 5s", Verdict{Wait: 5 * time.Second, HasWait: true}},
		"a text that is cut off":     {strings.Repeat("x", MaxBytes) + " try again in 5s", Verdict{}},
		"a text with a sign":         {"Your credit balance is too low", Verdict{Exhausted: true}},
		"HTML with a code":           {`<p "code":"insufficient_quota">`, Verdict{}},
		"space first":                {"\n {" + code + "}", Verdict{Exhausted: true}},
		"space around the colon":     {"{\"code\" \n:\t\"insufficient_quota\"}", Verdict{Exhausted: true}},
		"cut off after the code":     {`{"error":{` + code, Verdict{Exhausted: true}},
		"cut off in the code":        {`{"error":{"code":"insufficient_quota`, Verdict{}},
		"cut off in an escape":       {`{"error":{"message":"try again in 5s\`, Verdict{}},
		"cut off in a message":       {`{"error":{"message":"try again in 1m`, Verdict{}},
		"cut off long after a wait":  {`{"error":{"message":"try again in 1m` + strings.Repeat(".", 200), Verdict{Wait: time.Minute, HasWait: true}},
		"cut off in a text":          {`{"error":{"message":"credit balance is too low ...`, Verdict{Exhausted: true}},
		"cut off in a number":        {`{"retry_after":5`, Verdict{}},
		"escaped in a message":       {`{"error":{"message":"{\"code\":\"insufficient_quota\"}"}}`, Verdict{}},
		"escaped quote before":       {`{"error":{"message":"a \" b \\",` + code + `}}`, Verdict{Exhausted: true}},
		"code that contains it":      {`{"code":"no_insufficient_quota"}`, Verdict{}},
		"code in an array":           {`{"code":["insufficient_quota"]}`, Verdict{}},
		"code as a key":              {`{"insufficient_quota":1}`, Verdict{}},
		"code of something else":     {`{"param":"insufficient_quota"}`, Verdict{}},
		"code and a wait":            {`{` + code + `,"message":"try again in 5s"}`, Verdict{Wait: 5 * time.Second, HasWait: true}},
		"a wait, then a code":        {`{"message":"try again in 5s",` + code + `}`, Verdict{Wait: 5 * time.Second, HasWait: true}},
		"error is a code":            {`{"error":"insufficient_quota"}`, Verdict{Exhausted: true}},
		"error is a message":         {`{"error":"Please retry in 2s"}`, Verdict{Wait: 2 * time.Second, HasWait: true}},
		"delay that is no duration":  {`{"retryDelay":"soon"}`, Verdict{}},
		"delay that is a number":     {`{"retryDelay":5}`, Verdict{Wait: 5 * time.Second, HasWait: true}},
		"negative delay":             {`{"retryDelay":"-5s"}`, Verdict{}},
		"longest of two delays":      {`[{"retryDelay":"5s"},{"retryDelay":"7s"},{"retryDelay":"6s"}]`, Verdict{Wait: 7 * time.Second, HasWait: true}},
		"huge delay":                 {`{"retryDelay":"9999999999999999999s"}`, Verdict{Wait: backoff.Forever, HasWait: true}},
		"negative seconds":           {`{"retry_after":-5}`, Verdict{}},
		"seconds with an exponent":   {`{"retry_after":1e3}`, Verdict{}},
		"endless number":             {`{"retry_after":` + strings.Repeat("9", 1000) + `}`, Verdict{}},
		"invalid UTF-8":              {"{\"message\":\"\xff\xfe try again in 5s \xc3\"}", Verdict{Wait: 5 * time.Second, HasWait: true}},
		"invalid UTF-8 in a unit":    {"{\"message\":\"try again in 5s\xc3\"}", Verdict{}},
		"NUL":                        {"{\x00\"code\":\"insufficient_quota\"}", Verdict{Exhausted: true}},
		"10 000 brackets":            {strings.Repeat("[", 10_000), Verdict{}},
		"deep and then a code":       {strings.Repeat(`{"error":[`, 500) + "{" + code + "}", Verdict{Exhausted: true}},
		"beyond what is searched":    {`{"message":"` + strings.Repeat(".", maxMessages) + `try again in 5s"}`, Verdict{}},
		"second message":             {`{"message":"` + strings.Repeat(".", maxMessages-100) + `","error":"try again in 5s"}`, Verdict{Wait: 5 * time.Second, HasWait: true}},
		"beyond what is read":        {`{"a":"` + strings.Repeat("x", MaxBytes) + `",` + code + `}`, Verdict{}},
		"at the end of what is read": {`{"a":"` + strings.Repeat("x", MaxBytes-8-len(code)) + `",` + code + `}`, Verdict{Exhausted: true}},
	} {
		got := read(Usual(), []byte(tc.body))
		if got.Exhausted && !got.UsedUp {
			t.Errorf("%s: exhausted and not used up", name)
		}
		if got.UsedUp = false; got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestParseList(t *testing.T) {
	l, err := ParseList(" Out_Of_Beans, the Beans are gone ,!insufficient_quota,!credit balance is too low, GenerateRequestsPerDayPerProjectPerModel-FreeTier,out_of_beans,1113")
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]bool{
		`{"code":"out_of_beans"}`: true, `{"code":"OUT_OF_BEANS"}`: true, `{"message":"Sorry: the beans are gone!"}`: true, `{"message":"out_of_beans"}`: false, `{"code":1113}`: true, `{"code":"1113"}`: true, `{"code":11130}`: false,
		`{"code":"insufficient_quota"}`: false, `{"message":"Your credit balance is too low to x"}`: false, `{"code":"billing_error"}`: true,
		`{"violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}`: true,
	} {
		if got := read(l, []byte(body)); got.Exhausted != want {
			t.Errorf("%s: %+v", body, got)
		}
	}
	if !read(Usual(), []byte(`{"code":"insufficient_quota"}`)).Exhausted || read(Usual(), []byte(`{"code":"out_of_beans"}`)).Exhausted {
		t.Error("a setting changed the usual list")
	}
	first, err1 := ParseList("first_code,the first text")
	_, err2 := ParseList("second_code,the second text")
	if err1 != nil || err2 != nil || !read(first, []byte(`{"code":"first_code"}`)).Exhausted || !read(first, []byte(`{"message":"the first text"}`)).Exhausted {
		t.Errorf("a second setting changed the first list, or %v, %v", err1, err2)
	}
	if l, err := ParseList("  "); err != nil || l != Usual() {
		t.Errorf("empty: %v, %v", l, err)
	}
	if l, err := ParseList("None"); err != nil || read(l, []byte(`{"code":"insufficient_quota","message":"insufficient balance"}`)).Exhausted || !read(l, []byte(`{"message":"try again in 5s"}`)).HasWait {
		t.Errorf("none: %v, %v", l, err)
	}
	for text, want := range map[string]string{
		"a,,b": "empty entry", "!": "empty entry", "!no_such_code": "not in the list", strings.Repeat("a", 65): "65 bytes; at most 64", strings.Repeat("a,", 64) + "a": "65 entries; at most 64",
		"a\"b": "quote", "a\\b": "backslash", "a\nb": "control character", "a\xff": "UTF-8", "a,!b,!c": `"!c" is`,
	} {
		if text == "a,!b,!c" {
			want = `"c" is not in the list`
		}
		if _, err := ParseList(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: %v, want %q", text, err, want)
		}
	}
}

func TestReadDoesNotAllocate(t *testing.T) {
	for _, name := range []string{"gemini_per_minute", "openai_rate_limit_minutes", "zai_balance", "gateway_html"} {
		body, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() { read(Usual(), body) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// ascending is a text of durations that each exceed the one before.
func ascending(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%ds ", i)
	}
	return b.String()
}

// hostile bodies are the slowest that we could think of, none shorter than MaxBytes.
var hostile = map[string]string{
	"phrases":       `{"message":"` + strings.Repeat("try again in 1d1h1m1s1ms1us1ns", 300),
	"near phrases":  `{"message":"` + strings.Repeat("try again i", 800),
	"near texts":    `{"message":"` + strings.Repeat("reached your specified workspace api usage limit", 200),
	"keys":          `{` + strings.Repeat(`"code":"a",`, 800),
	"brackets":      strings.Repeat("[", 10_000),
	"open quote":    `{"` + strings.Repeat(`\"`, 5_000),
	"numbers":       `{"retry_after":` + strings.Repeat("1", 9_000),
	"durations":     `{"message":"` + ascending(2000),
	"times":         "limit " + strings.Repeat("2026-01-01 at x y ", 600),
	"words for one": "limit " + strings.Repeat("a ", 5000),
	"wait keys":     "{" + strings.Repeat(`"next_retry_after_time_in":"1772366430x",`, 300),
	"short strings": "[" + strings.Repeat(`""`, 5_000),
}

func BenchmarkHostile(b *testing.B) {
	for name, body := range hostile {
		b.Run(strings.ReplaceAll(name, " ", "_"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				read(Usual(), []byte(body)[:min(len(body), MaxBytes)])
			}
		})
	}
}

// reading returns the CPU time of reading body times times.
func reading(t *testing.T, body string, times int) time.Duration {
	t.Helper()
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	b, began := []byte(body), used()
	for range times {
		read(Usual(), b)
	}
	return used() - began
}

// A hostile body that is four times as long takes four times the work, not sixteen times.
func TestTheWorkOfReadIsInProportion(t *testing.T) {
	const enough = 20 * time.Millisecond // more than the steps in which CPU time is counted
	for name, body := range hostile {
		quarter, times := body[:MaxBytes/4], 1
		took := reading(t, quarter, times)
		for took < enough {
			times *= 2
			took = reading(t, quarter, times)
		}
		if ratio := float64(reading(t, body[:MaxBytes], times)) / float64(took); ratio > 8 {
			t.Errorf("%s: %.1f times the work of a quarter of it", name, ratio)
		}
	}
}

// members is what decode finds in a body with encoding/json.
type members struct {
	exhausted bool
	messages  int // bytes of all strings
}

// decode applies the rules to a valid JSON body, with a parser and recursion.
func decode(t *testing.T, l *List, v any, key string, m *members) {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			decode(t, l, inner, k, m)
		}
	case []any:
		for _, inner := range v {
			decode(t, l, inner, "", m)
		}
	case json.Number:
		m.exhausted = m.exhausted || roles([]byte(key))&holdsCode != 0 && l.hasCode([]byte(v))
	case string:
		m.exhausted = m.exhausted || roles([]byte(key))&holdsCode != 0 && l.hasCode([]byte(v)) || roles([]byte(key))&holdsMessage != 0 && l.hasText([]byte(v))
		m.messages += len(v)
	}
}

// For any input there is no panic, no negative wait and nothing from beyond the limit. For JSON it
// finds the same codes as a real parser.
func FuzzRead(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.json")
	for _, name := range files {
		body, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
		f.Add(body[:len(body)/2])
	}
	for _, body := range hostile {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		v := read(Usual(), body)
		if v.Wait < 0 || !v.HasWait && v.Wait != 0 || v.HasWait && v.Exhausted {
			t.Fatalf("%+v", v)
		}
		if again := read(Usual(), append(body[:min(len(body), MaxBytes):min(len(body), MaxBytes)], `"code":"insufficient_quota"`...)); len(body) >= MaxBytes && again != v {
			t.Fatalf("%+v, and with more behind the bound %+v", v, again)
		}
		// Escapes are not decoded, and encoding/json keeps only the last of two equal keys.
		if len(body) > MaxBytes || bytes.IndexByte(body, '\\') >= 0 || bytes.ContainsFunc(body, func(r rune) bool { return r == '\uFFFD' }) {
			return
		}
		d := json.NewDecoder(bytes.NewReader(body))
		d.UseNumber()
		var parsed any
		if d.Decode(&parsed) != nil || d.More() {
			return
		}
		if body = bytes.TrimSpace(body); len(body) == 0 || body[0] != '{' && body[0] != '[' {
			return
		}
		var m members
		decode(t, Usual(), parsed, "", &m)
		if m.exhausted && !v.Exhausted && !v.HasWait && m.messages <= maxMessages {
			t.Fatalf("%s: %+v, by a parser %+v", body, v, m)
		}
	})
}

// The lists of refused credentials and of smaller requests find each of their signs, and only these.
func TestSignsOfACredential(t *testing.T) {
	for _, e := range CredentialEntries() {
		key := "code"
		if IsText(e.Sign) {
			key = "message"
		}
		body := fmt.Appendf(nil, `{"error":{%q:%q}}`, key, strings.ToUpper(e.Sign))
		if !Credentials().Read(body, nil, time.Time{}).UsedUp || Usual().Read(body, nil, time.Time{}).UsedUp || e.Vendor == "" || e.Source == "" {
			t.Errorf("%s", body)
		}
	}
	for body, want := range map[string]bool{
		`{"error":{"message":"This request requires more credits, or fewer max_tokens."}}`: true,
		`{"error":{"message":"Insufficient credits"}}`:                                     false,
	} {
		if got := Smaller().Read([]byte(body), nil, time.Time{}).UsedUp; got != want {
			t.Errorf("%s: %v", body, got)
		}
	}
	if Credentials().Read([]byte(`{"error":{"code":"insufficient_quota"}}`), nil, time.Time{}).UsedUp {
		t.Error("a spent account is no refused credential")
	}
}

// sameVerdict compares two verdicts without UsedUp, which follows from Exhausted unless there is a wait.
func sameVerdict(a, b Verdict) bool {
	if a.Exhausted && !a.UsedUp {
		return false
	}
	a.UsedUp, b.UsedUp, a.Renewed, b.Renewed = false, false, 0, 0
	return a == b
}
