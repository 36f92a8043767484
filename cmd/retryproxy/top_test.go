package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/page"
)

// topOf runs the command against p.
func topOf(p *process, flags ...string) (string, string, int) {
	var out, errs bytes.Buffer
	code := run(context.Background(), &outside{args: append([]string{"top", "--address", p.admin}, flags...), stdout: &out, stderr: &errs})
	return out.String(), errs.String(), code
}

func TestTopShowsOneTableWhereNobodyLooks(t *testing.T) {
	p := serve(t, "UPSTREAM="+failing(t, "a", 0).URL)
	p.get(0, "/x?token=secret")
	p.await("the route in the page", func() bool { return len(p.lookAt().State.Routes) == 1 })
	out, errs, code := topOf(p)
	if code != exitOK || errs != "" || strings.Contains(out, "\x1b") || strings.Contains(out, "secret") {
		t.Fatalf("%d %s\n%s", code, errs, out)
	}
	for _, want := range []string{"retryproxy ", "default", "5 min", "upstream", "closed"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestTopAsJSON(t *testing.T) {
	p := serve(t, "UPSTREAM="+failing(t, "a", 0).URL)
	p.get(0, "/x")
	p.await("the request in the page", func() bool { r := p.lookAt().State.Routes; return len(r) == 1 && r[0].Last.Requests == 1 })
	out, errs, code := topOf(p, "--json")
	var s page.Snapshot
	if err := json.Unmarshal([]byte(out), &s); err != nil || code != exitOK || len(s.State.Routes) != 1 || s.State.Routes[0].Last.Requests != 1 {
		t.Errorf("%d %s %v\n%s", code, errs, err, out)
	}
}

func TestTopFailsWhenNobodyAnswers(t *testing.T) {
	var out, errs bytes.Buffer
	code := run(context.Background(), &outside{args: []string{"top", "--address", "unix:" + t.TempDir() + "/none"}, stdout: &out, stderr: &errs})
	if code != exitFailed || out.String() != "" || !strings.Contains(errs.String(), "ask unix:") {
		t.Errorf("%d %q %q", code, out.String(), errs.String())
	}
}

// On a terminal it looks again and again, and says when nobody answers.
func TestTopDrawsAgainInPlace(t *testing.T) {
	p := serve(t, "UPSTREAM="+failing(t, "a", 0).URL)
	_, first := p.ask("/page/state.json")
	ctx, cancel := context.WithCancel(context.Background())
	looks := 0
	var out bytes.Buffer
	c := &call{outside: &outside{stdout: &out}, command: &topCommand}
	err := c.keepTop(ctx, func(context.Context, string, string, string) (int, string, error) {
		if looks++; looks > 3 {
			cancel()
		}
		return map[bool]int{true: 503, false: 200}[looks == 2], first, nil
	}, first, leastEvery)
	if err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if n := strings.Count(text, goHome); n != 4 || strings.Count(text, "the response was 503") != 1 || strings.Count(text, "retryproxy ") != 4 { // the last one stays
		t.Errorf("%d drawn:\n%q", n, text)
	}
	if !strings.HasPrefix(text, enterScreen) || strings.Count(text, leaveScreen) != 1 || strings.Contains(text[strings.Index(text, leaveScreen)+len(leaveScreen):], "\x1b") {
		t.Errorf("the terminal is not given back: %q", text)
	}
}

func TestTheKeyQEndsTop(t *testing.T) {
	never := make(chan time.Time)
	for keys, want := range map[string]bool{"q": true, "xyq": true, "Q": true, "\x04": true} {
		pressed := make(chan byte, len(keys))
		for i := range len(keys) {
			pressed <- keys[i]
		}
		if got := over(t.Context(), never, pressed); got != want {
			t.Errorf("%q: over %v", keys, got)
		}
	}
	ticked := make(chan time.Time, 1)
	ticked <- time.Now()
	if over(t.Context(), ticked, nil) {
		t.Error("it is over at the next look")
	}
}

// Erased behind a line that is as wide as the window, its last character would go.
func TestALineIsErasedBeforeItIsWritten(t *testing.T) {
	var out bytes.Buffer
	c := &call{outside: &outside{stdout: &out}}
	c.redraw("wide\nline\n")
	if want := "\x1b[H\x1b[Kwide\n\x1b[Kline\n\x1b[J"; out.String() != want {
		t.Errorf("%q, expected %q", out.String(), want)
	}
}
