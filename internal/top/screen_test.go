package top

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/internal/admin/page"
)

// On a terminal it refreshes continuously, and shows if nobody responds.
func TestTopDrawsAgainInPlace(t *testing.T) {
	first, err := json.Marshal(page.Snapshot{State: page.State{Version: "1"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	looks := 0
	var out bytes.Buffer
	s := Screen{Out: &out, Getenv: func(string) string { return "" }}
	err = s.Watch(ctx, func(context.Context, string, string, string) (int, string, error) {
		if looks++; looks > 3 {
			cancel()
		}
		return map[bool]int{true: 503, false: 200}[looks == 2], string(first), nil
	}, string(first), leastEvery)
	if err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if n := strings.Count(text, goHome); n != 4 || strings.Count(text, "the response was 503") != 1 || strings.Count(text, "retryproxy ") != 4 { // the last state stays
		t.Errorf("%d drawn:\n%q", n, text)
	}
	if !strings.HasPrefix(text, enterScreen) || strings.Count(text, leaveScreen) != 1 || strings.Count(text[strings.Index(text, leaveScreen)+len(leaveScreen):], "\x1b") != 1 || !strings.HasSuffix(text, wrapAgain) {
		t.Errorf("the terminal is not given back: %q", text)
	}
}

// Erasing after a line as wide as the window would erase its last character.
func TestALineIsErasedBeforeItIsWritten(t *testing.T) {
	var out bytes.Buffer
	Screen{Out: &out}.rewrite("wide\nline\n")
	if want := "\x1b[H\x1b[Kwide\n\x1b[Kline\n\x1b[J"; out.String() != want {
		t.Errorf("%q, expected %q", out.String(), want)
	}
}

func TestAnotherServerIsNotARetryproxy(t *testing.T) {
	for body, status := range map[string]int{"<html>": 200, "not found": 404, "{}": 200, "<h1>Bad Gateway</h1>": 502, "text": 200} {
		_, err := Look(context.Background(), func(context.Context, string, string, string) (int, string, error) { return status, body, nil })
		if err == nil || !strings.Contains(err.Error(), "not that of the admin listener of a retryproxy") || strings.Contains(err.Error(), body) {
			t.Errorf("%d %s: %v", status, body, err)
		}
	}
}
