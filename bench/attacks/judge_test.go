package main

import (
	"net/http"
	"testing"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

func TestAnAnswerFromElsewhereIsSeen(t *testing.T) {
	moved := "/moved?301&http://x/"
	for name, tc := range map[string]struct {
		status   int
		asked    string
		location string
		n        int
	}{
		"the upstream's":          {200, "/ok", "", 0},
		"a refusal":               {403, "", "", 0},
		"no CONNECT":              {501, "", "", 0},
		"the canary's":            {200, "", "", 1},
		"a dial that failed":      {502, "", "", 1},
		"a redirect":              {301, moved, "http://x/", 0},
		"a redirect followed":     {200, moved, "", 1},
		"a redirect to elsewhere": {301, moved, "http://y/", 1},
	} {
		g := &stage{}
		h := &http.Response{StatusCode: tc.status, Header: http.Header{}}
		if tc.asked != "" {
			h.Header.Set(askedField, tc.asked)
		}
		if tc.location != "" {
			h.Header.Set("Location", tc.location)
		}
		if g.judgeNamed(h); g.N() != tc.n {
			t.Errorf("%s: %v", name, g.All())
		}
	}
}

func TestARequestThatNobodySentIsSeen(t *testing.T) {
	g := &smuggleStage{stage: &stage{}, meant: map[string]bool{}, said: map[string]string{}}
	g.mean("http://a.example/s/1?x", bodyOf([]byte("hello")), "")
	for _, tc := range []struct {
		target, body string
		n            int
	}{{"/s/1?x", "hello", 0}, {"/s/1?x", "hell", 1}, {"/hidden/1", "", 2}} {
		if g.took(tc.target, bodyOf([]byte(tc.body))); g.N() != tc.n {
			t.Errorf("%s %q: %v", tc.target, tc.body, g.All())
		}
	}
}

func TestADoubtfulRequestIsSeen(t *testing.T) {
	for raw, n := range map[string]int{"GET /ok?1 HTTP/1.1\r\nHost: a\r\n\r\n": 0, "GET /ok?1 HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n": 1} {
		g := &smuggleStage{stage: &stage{}}
		_, again := g.take(rig.Message{Reading: rig.Reading{Method: "GET", Target: "/ok?1"}, Raw: []byte(raw)}, nil)
		if g.N() != n || !again {
			t.Errorf("%q: %v", raw, g.All())
		}
	}
}
