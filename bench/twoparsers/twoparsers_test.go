package main

import (
	"bytes"
	"io"
	"slices"
	"testing"

	"github.com/retryproxy/retryproxy/bench/conformance"
	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

func TestAStreamFollowsFromItsSeed(t *testing.T) {
	table := conformance.Requests()
	differ := false
	for n := range uint64(200) {
		one := stream(1, n, table)
		if !bytes.Equal(one, stream(1, n, table)) {
			t.Fatalf("stream %d differs from itself", n)
		}
		differ = differ || !bytes.Equal(one, stream(2, n, table))
	}
	if !differ {
		t.Error("another seed changes nothing")
	}
}

func TestSplit(t *testing.T) {
	const a, b = "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-T: 1\r\n\r\n", "GET /b HTTP/1.1\r\nHost: h\r\n\r\n"
	for name, c := range map[string]struct {
		all   string
		whole int
		rest  string
		fault bool
	}{
		"whole":     {all: a + b, whole: 2},
		"cut head":  {all: a + b[:9], whole: 1, rest: b[:9]},
		"cut body":  {all: b + a[:len(a)-1], whole: 1, rest: a[:len(a)-1]},
		"no reques": {all: b + "GET\r\n\r\n", whole: 1, rest: "GET\r\n\r\n", fault: true},
	} {
		got, rest, fault := rig.Split([]byte(c.all))
		if len(got) != c.whole || string(rest) != c.rest || (fault != nil) != c.fault {
			t.Errorf("%s: %d requests, rest %q, fault %v", name, len(got), rest, fault)
		}
	}
}

// A reader that swallows a request, or finds one more, is told of.
func TestOtherReadingsAreViolations(t *testing.T) {
	whole := []byte("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello")
	for name, change := range map[string]func(m *rig.Message){
		"none":   func(*rig.Message) {},
		"target": func(m *rig.Message) { m.Target = "/b" },
		"body":   func(m *rig.Message) { m.Body = emptyBody },
		"number": func(m *rig.Message) { m.Raw = append(m.Raw, m.Raw...) },
		"end":    func(m *rig.Message) { m.Raw = m.Raw[:len(m.Raw)-1] },
	} {
		var bed rig.Bed
		by := newReader(&bed, "net/http")
		got, _, _ := rig.Split(whole)
		change(&got[0])
		r := &rig.Findings{}
		by.readAll(r, got)
		if (r.N() > 0) != (name != "none") {
			t.Errorf("%s: %d violations %v", name, r.N(), r.All())
		}
		bed.End()
	}
}

func TestAboveRoot(t *testing.T) {
	for target, above := range map[string]bool{"/": false, "/..": true, "/a/../..": true, "/a/..": false, "/%2e%2e": true, "/?/..": false, "/./..": true, "//..": false} {
		if aboveRoot(target) != above {
			t.Errorf("%s: %v", target, !above)
		}
	}
}

func TestWrongOptionsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"x"}, {"--for", "0s"}, {"--seed", "-1"}} {
		if code := rig.Program(run).Run(t.Context(), "twoparsers", args, io.Discard, io.Discard); code != rig.Usage {
			t.Errorf("%v: code %d", args, code)
		}
	}
}

func TestAnUpgradeToWebSocketIsFoundInAList(t *testing.T) {
	for upgrade, want := range map[string]bool{"websocket": true, ",websocket": true, "h2c, WebSocket": true, "websockets": false, "": false} {
		raw := "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: " + upgrade + "\r\n\r\n"
		refuses := slices.ContainsFunc(rules, func(r rule) bool {
			return r.what == "an upgrade to WebSocket without its key" && r.holds(&rig.Message{Raw: []byte(raw)})
		})
		if refuses != want {
			t.Errorf("%q: %v, want %v", upgrade, refuses, want)
		}
	}
}
