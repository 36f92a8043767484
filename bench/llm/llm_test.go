package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// program is the retryproxy under test, built once.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "llm")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "retryproxy")
	c := exec.Command("go", "build", "-o", program, "./cmd/retryproxy")
	c.Dir = "../.."
	code := 1
	if out, err := c.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// Every judge can find what it is for: proxies that repeat at once, repeat what may have been
// billed, change bodies, hide that they were cut off, or do not retry. Beside them retryproxy keeps
// every promise, and with RETRY_METHODS=any it does not.
func TestEachBrokenPromiseIsFound(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"--proxy", program, "--short"}, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	o.errors, o.rate, o.tokenLimit, o.pairs = 0.25, 14, 5600, 1
	unsafe := *o
	unsafe.set = []string{"RETRYPROXY_RETRY_METHODS=any", "RETRYPROXY_BACKOFF_BASE=50ms"}
	cases := []struct {
		name  string
		start func(context.Context, *rig.Bed, string) ([]string, error)
		finds []string // on one of the rows at least; nil: nothing on any
	}{
		{"impatient", careless{atOnce: true}.start, []string{"earlier than the provider asked for", "after the account was used up"}},
		{"repeating", careless{repeatsCuts: true}.start, []string{"billed twice"}},
		{"changing", careless{changes: true}.start, []string{"were changed"}},
		{"hiding", careless{hidesCuts: true}.start, []string{"were changed"}},
		{"giving up", careless{}.start, []string{"failed before their first content"}},
		{"unsafe", unsafe.startRetryproxy, []string{"billed twice"}},
		{"careful", o.startRetryproxy, nil},
	}
	var ways []way
	for _, tc := range cases {
		ways = append(ways, way{name: tc.name, judge: true, start: tc.start})
	}
	rows, err := o.playAll(t.Context(), ways, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range cases {
		found := ""
		for _, r := range rows {
			if r.Through == tc.name {
				found += strings.Join(r.broken(), "\n") + "\n"
			}
			if r.AddedLatency == nil || r.Jobs != len(o.arrivals()) {
				t.Errorf("%s: latency %v, %d jobs", r.title(), r.AddedLatency, r.Jobs)
			}
		}
		for _, want := range tc.finds {
			if !strings.Contains(found, want) {
				t.Errorf("%s: not found: %s; found: %s", tc.name, want, found)
			}
		}
		if tc.finds == nil && strings.TrimSpace(found) != "" {
			t.Errorf("%s: %s", tc.name, found)
		}
	}
}

func TestRunPrintsATableAndWritesTheRows(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "llm.json")
	play := func(rate, errors float64) rig.Program {
		return func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
			o, err := parse(args, stderr)
			if err != nil {
				return err
			}
			o.pairs, o.rate, o.errors = 1, rate, errors
			return o.run(ctx, args, stdout, stderr)
		}
	}
	args := []string{"--short", "--proxy", program, "--through", "direct,retryproxy", "--json", file}
	var out, errs bytes.Buffer
	if code := play(5, 0.05).Run(t.Context(), "llm", args, &out, &errs); code != rig.OK {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	if lines := strings.Count(out.String(), "\n| "); lines != 2+8 { // header, rule, rows
		t.Errorf("%d lines of a table in\n%s", lines, out.String())
	}
	var d document
	if text, err := os.ReadFile(file); err != nil || json.Unmarshal(text, &d) != nil || len(d.Rows) != 8 || d.Rows[0].Good == 0 {
		t.Errorf("%v %v", err, d)
	}
	unsafe := append(args, "--through", "retryproxy", "--set", "RETRYPROXY_RETRY_METHODS=any", "--set", "RETRYPROXY_BACKOFF_BASE=50ms")
	if code := play(10, 0.25).Run(t.Context(), "llm", unsafe, &out, &errs); code != rig.Failed || !strings.Contains(errs.String(), "billed twice") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}

func TestOnlyRowsOfRetryproxyAreHeldToPromises(t *testing.T) {
	bad := row{Early: 1, Twice: 1, Futile: 1, Failed: 1, Changed: 1}
	if all := bad.broken(); all != nil {
		t.Errorf("not judged, and yet %q", all)
	}
	bad.judged, bad.short = true, true
	if all := bad.broken(); len(all) != 5 {
		t.Errorf("%d of 5 promises: %q", len(all), all)
	}
	idle := row{judged: true, Good: 1, Faults: map[string]int{"429": 0, "503": 1}}
	if all := idle.broken(); len(all) != 3 {
		t.Errorf("no 429, a fault that did not happen, and a body that was not compared: %q", all)
	}
}

func TestFaultsComeInTurnAndAUsedUpAccountRemainsSo(t *testing.T) {
	f := schedule{seed: 3, errors: 0.1, median: time.Second, sigma: 0.5}
	var seen [faults]int
	for n := range 700 {
		it := f.of(n, 0)
		seen[it.fault]++
		if it.fault == spent && f.of(n, 1).fault != spent {
			t.Errorf("job %d: the account is filled again", n)
		}
		if j := f.jobOf(n); j.tokens < 10 || j.tokens > mostTokens || j.generation <= 0 || it.fault == errorEvent && !j.stream {
			t.Errorf("%+v with %v", j, it)
		}
	}
	for k, n := range seen {
		if k != int(noFault) && n != 10 {
			t.Errorf("%s: %d times, want 10", faultNames[k], n)
		}
	}
}

func TestTheLedgerKnowsABodyThatIsNotAsSent(t *testing.T) {
	whole, short, cut := body{[]byte("words"), true}, body{[]byte("wor"), false}, body{[]byte("words"), false}
	for name, tc := range map[string]struct {
		sent, got body
		changed   int
	}{
		"as sent":            {whole, whole, 0},
		"another byte":       {whole, body{[]byte("Words"), true}, 1},
		"cut off on the way": {whole, short, 1},
		"cut off by both":    {cut, cut, 0},
		"less of a cut one":  {cut, short, 0},
		"more than was sent": {short, cut, 1},
		"a cut that is gone": {cut, whole, 1},
		"another beginning":  {cut, body{[]byte("War"), false}, 1},
		"less, as a whole":   {whole, body{[]byte("wor"), true}, 1},
	} {
		l := newLedger()
		l.sent["1"] = tc.sent
		if n := l.changed(map[string]body{"1": tc.got}); n != tc.changed {
			t.Errorf("%s: %d changed, want %d", name, n, tc.changed)
		}
	}
	if n := newLedger().changed(map[string]body{"1": whole}); n != 1 {
		t.Error("a response that nobody sent is not found")
	}
}

func TestArgumentsAreChecked(t *testing.T) {
	for _, args := range [][]string{{"--through", "nginx"}, {"--through", ""}, {"--load", "0s"}, {"more"}} {
		var errs bytes.Buffer
		if code := rig.Program(run).Run(t.Context(), "llm", args, &errs, &errs); code != rig.Usage {
			t.Errorf("%v: exit code %d, want %d", args, code, rig.Usage)
		}
	}
	var errs bytes.Buffer
	if code := rig.Program(run).Run(t.Context(), "llm", []string{"--short", "--through", "retryproxy", "--proxy", "/nowhere"}, &errs, &errs); code != rig.Failed || !strings.Contains(errs.String(), "/nowhere") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}
