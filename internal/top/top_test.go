package top

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/retryproxy/retryproxy/internal/admin/page"
	"github.com/retryproxy/retryproxy/internal/terminal"
)

// bad is a snapshot with failures.
func bad() *page.Snapshot {
	breakers := make([]string, page.Points)
	for i := range breakers {
		breakers[i] = []string{"", "closed", "closed", "open", "half_open", "slow_start"}[i/10]
	}
	return &page.Snapshot{
		State: page.State{
			Version: "1.2.3", Host: "web-7f\x1b[1m", UptimeMS: 3_723_400, MoreRoutes: 2,
			Process: page.Process{Position: "inbound", Connections: 12, RetryBufferUsed: 1536, RetryBufferLimit: 64 << 20, Draining: true, RetryPercent: 30, Tokens: page.Tokens{Used: 1200, Limit: 90000}},
			Routes: []page.Route{{
				Name: "default", InFlight: 7,
				Now:  page.Span{Seconds: 5, Requests: 100, FirstAttempt: 80, Recovered: 15, Failed: 5, Retries: 30, P50: 4200, P99: 950_000, AttemptP50: 3900, AttemptP99: 12_000},
				Last: page.Span{Seconds: 300, Requests: 10_000, FirstAttempt: 9_999, Recovered: 1, P50: 4200, P99: 31_000_000},
			}, {Name: "search-with-a-long-name"}},
			Upstreams: []page.Upstream{{
				Name: "http://localhost:3000", Breaker: "open", BreakerWhy: "The upstream is down.", OpenedBy: "No address took connections.",
				LastFailure: &page.Failure{AtMS: 1_767_355_200_000, Address: "127.0.0.1:3000", Error: "connect: connection \x1b[2Jrefused"},
				Limit:       20, InFlight: 3, Waiting: 44, HasBudget: true, Budget: 9.7, Active: 1, Idle: 2, History: page.UpstreamHistory{Breaker: breakers},
			}, {Name: "https://api.example.com", Breaker: "closed", History: page.UpstreamHistory{Breaker: []string{"closed", "closed"}}}},
		},
		Requests: page.Requests{Failed: []page.Request{
			{BeganMS: 1_767_355_200_000, Route: "default", Method: "GET", Path: "/a\x1b[2J/é", Code: 503, Outcome: "gave_up_retries_exhausted", Took: 750_000,
				Attempts: []page.Attempt{{Took: 1200, Result: "503"}, {Took: 10_000_000, Result: "attempt_timeout"}}},
			{BeganMS: 1_767_355_200_000, Route: "default", Method: "POST", Path: "/b", Outcome: "fail_fast"},
		}},
	}
}

func written(t *testing.T, s *page.Snapshot, screen terminal.Screen) string {
	t.Helper()
	zone := time.Local
	time.Local = time.UTC
	defer func() { time.Local = zone }()
	var b strings.Builder
	if err := Write(&b, s, screen, Size{}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPlainTables(t *testing.T) {
	got := written(t, bad(), terminal.Screen{Width: 80})
	want, err := os.ReadFile(filepath.Join("testdata", "plain.txt"))
	if os.Getenv("UPDATE") != "" {
		err = os.WriteFile(filepath.Join("testdata", "plain.txt"), []byte(got), 0o644)
		want = []byte(got)
	}
	if err != nil || got != string(want) {
		t.Errorf("%v\n%s", err, got)
	}
}

var escape = regexp.MustCompile("\x1b\\[[0-9]+m")

func TestColourSaysNothingMore(t *testing.T) {
	plain := written(t, bad(), terminal.Screen{Width: 80, Unicode: true})
	if strings.Contains(plain, "\x1b") {
		t.Error("an escape sequence without colours")
	}
	coloured := written(t, bad(), terminal.Screen{Width: 1000, Unicode: true, Color: true})
	if !strings.Contains(coloured, "\x1b[31mopen") {
		t.Error("an open breaker is not red")
	}
	if without := escape.ReplaceAllString(coloured, ""); without != plain {
		t.Errorf("without colours\n%s\nexpected\n%s", without, plain)
	}
}

func TestNothingYet(t *testing.T) {
	s := &page.Snapshot{State: page.State{Process: page.Process{RetryPercent: 100}}}
	got := written(t, s, terminal.Screen{Width: 80})
	if !strings.Contains(got, "no request has come yet") || strings.Contains(got, "failed last") || strings.Contains(got, "draining") || strings.Contains(got, "retry-percent") {
		t.Error(got)
	}
}

func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{
		rate(0, 5): "0", rate(1, 5): "0.2", rate(1000, 5): "200", rate(3, 0): "3000",
		share(0, 0): "-", share(0, 9): "0 %", share(9, 9): "100 %", share(1, 10_000): "<0.1 %", share(9_999, 10_000): "99.9 %", share(1, 3): "33.3 %",
		short(0): "-", short(900): "0.9 ms", short(12_345): "12 ms", short(31_000_000): "31.0 s",
		size(5): "5 B", size(1536): "1.5 KiB", size(64 << 20): "64 MiB",
	} {
		if got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestWriteErrorIsTold(t *testing.T) {
	if err := Write(full{}, bad(), terminal.Screen{Width: 80}, Size{}); err == nil {
		t.Error("no error")
	}
}

// Text is wrapped, and a long name leaves room for the numbers. The last columns of tables are left out.
func TestANarrowWindowShowsWhatMattersMost(t *testing.T) {
	for columns, wants := range map[int][]string{
		80:  {"recovered", "failed  ", "p99", "31.0 s", "in flight", "breaker", "open", "queued", "44", "gave up", "GET /a", "connection refused"},
		120: {"retries", "p50", "budget left", "idle"},
		200: {"attempt p50", "attempt timeout 10.0 s"},
	} {
		var b strings.Builder
		s := bad()
		s.State.Routes[1].Name = strings.Repeat("long-name-", 6)
		s.State.Upstreams[0].LastFailure.Error = "connect: connection refused"
		s.Requests.Failed[1].Path = "/世界/" + strings.Repeat("x", 300)
		if err := Write(&b, s, terminal.Screen{Unicode: true}, Size{Columns: columns}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns {
				t.Errorf("a line of %d characters in %d columns: %s", n, columns, line)
			}
		}
		for _, want := range wants {
			if !strings.Contains(strings.ReplaceAll(b.String(), "\n  ", " "), want) {
				t.Errorf("no %q in %d columns:\n%s", want, columns, b.String())
			}
		}
	}
}

// A terminal without wrapping writes the rest of a long line over its last character, so that 4321
// could be shown as 41.
func TestANumberIsShownWholeOrNotAtAll(t *testing.T) {
	s := bad()
	s.State.Routes[0].InFlight = 4321
	for columns := 10; columns < 200; columns++ {
		for _, color := range []bool{false, true} {
			var b strings.Builder
			if err := Write(&b, s, terminal.Screen{Color: color}, Size{Columns: columns}); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(escape.ReplaceAllString(b.String(), "")) {
				if strings.HasSuffix(line, " 4\n") || strings.HasSuffix(line, "43\n") || strings.HasSuffix(line, "432\n") || utf8.RuneCountInString(line) > columns+1 {
					t.Errorf("%d columns: %q", columns, line)
				}
			}
		}
	}
}

// A long route name, or the many attempts of another request, does not hide the path of a failed one.
func TestAWindowShowsAsMuchOfAFailedRequestAsFits(t *testing.T) {
	path := "/orders/2026/11/" + strings.Repeat("x", 36) + "/end"
	for columns, want := range map[int]string{80: "GET /orders/2026/11/xxxx", 120: "GET " + path} {
		s := bad()
		s.Requests.Failed[0].Path = path
		s.Requests.Failed[0].Route = strings.Repeat("long-name-", 6)
		var b strings.Builder
		if err := Write(&b, s, terminal.Screen{}, Size{Columns: columns}); err != nil {
			t.Fatal(err)
		}
		begin := strings.Index(b.String(), want)
		if begin < 0 {
			t.Errorf("%d columns: no %q in\n%s", columns, want, b.String())
			continue
		}
		if end := begin + len(want) - 1 - strings.LastIndexByte(b.String()[:begin], '\n'); end > columns {
			t.Errorf("the request ends at column %d of %d", end, columns)
		}
	}
}

func TestTextIsWrappedAtWords(t *testing.T) {
	d := drawing{size: Size{Columns: 11}, screen: terminal.Screen{Color: true}}
	d.line(red, "one two three four")
	if want := []string{"\x1b[31mone two\x1b[0m", "\x1b[31m  three\x1b[0m", "\x1b[31m  four\x1b[0m"}; !slices.Equal(d.lines, want) {
		t.Errorf("%q, expected %q", d.lines, want)
	}
}

func TestALowWindowSaysHowMuchIsMissing(t *testing.T) {
	all, legend, _ := strings.Cut(written(t, bad(), terminal.Screen{}), "\n\nfirst attempt: ")
	all += "\n"
	if !strings.Contains(legend, "half-open") {
		t.Errorf("no legend: %s", legend)
	}
	var b strings.Builder
	if err := Write(&b, bad(), terminal.Screen{}, Size{Rows: 10}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if left := strings.Count(all, "\n") - 9; len(lines) != 10 || lines[9] != fmt.Sprintf("%d more lines", left) {
		t.Errorf("%d lines, the last %q, %d are missing", len(lines), lines[len(lines)-1], left)
	}
}
