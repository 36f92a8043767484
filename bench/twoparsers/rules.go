package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// rule is a difference that is known, and does no harm: the reader refuses the request
// outright, so nobody takes it for another. What follows it on its connection is shown
// again, from there on.
type rule struct {
	reader   string
	statuses []int
	what     string
	why      string
	holds    func(m *rig.Message) bool
}

func (k *rule) name() string { return fmt.Sprintf("%s refuses %s", k.reader, k.what) }

func ruleFor(reader string, status int, m *rig.Message) *rule {
	for i := range rules {
		if k := &rules[i]; k.reader == reader && slices.Contains(k.statuses, status) && k.holds(m) {
			return k
		}
	}
	return nil
}

var upperMethod = regexp.MustCompile("^[A-Z_-]+$")

var rules = []rule{
	{"nginx", []int{400}, "a method with other characters than A to Z, _ and -", "RFC 9110 section 9.1 allows any token; nginx parses no others",
		func(m *rig.Message) bool { return !upperMethod.MatchString(m.Method) }},
	{"nginx", []int{405}, "TRACE", "it never serves that method", func(m *rig.Message) bool { return m.Method == "TRACE" }},
	{"nginx", []int{400}, "the target *", "it serves no request for the server as a whole", func(m *rig.Message) bool { return m.Target == "*" }},
	{"nginx", []int{400}, "a target that leads above the root", "it resolves . and .. to find its location", func(m *rig.Message) bool { return aboveRoot(m.Target) }},
	{"nginx", []int{400}, "a target with %00 or a % without two digits", "it decodes the path to find its location; RFC 3986 section 2.1 leaves the meaning to the origin",
		func(m *rig.Message) bool {
			p, err := url.PathUnescape(pathOf(m.Target))
			return err != nil || strings.Contains(p, "\x00")
		}},
	{"nginx", []int{400}, "a field twice that may stand once", "it wants one If-Match, If-Range, Authorization and the like; others join their values",
		func(m *rig.Message) bool {
			return twice(m.Raw, "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range", "Content-Range", "Range", "Expect", "Authorization", "Upgrade", "TE", "Content-Type", "Keep-Alive")
		}},
	{"nginx", []int{400}, "a Host with an empty label", "it checks that dots do not follow each other or begin the name", func(m *rig.Message) bool { return strings.Contains(m.Host, "..") || strings.HasPrefix(m.Host, ".") }},
	{"haproxy", []int{400}, "a target with bytes from 0x80", "RFC 3986 has none; it passes them only if accept-invalid-http-request is set",
		func(m *rig.Message) bool {
			return strings.ContainsFunc(m.Target, func(r rune) bool { return r >= 0x80 })
		}},
	{"haproxy", []int{400}, "a field name of more than 255 bytes", "its index of fields has a byte for that length",
		func(m *rig.Message) bool {
			for name := range headOf(m.Raw) {
				if len(name) > 255 {
					return true
				}
			}
			return false
		}},
	{"haproxy", []int{400}, "an upgrade to WebSocket without its key", "it wants Sec-WebSocket-Key of whoever asks for that protocol",
		func(m *rig.Message) bool {
			h := headOf(m.Raw)
			return httpguts.HeaderValuesContainsToken(h["Upgrade"], "websocket") && h.Get("Sec-WebSocket-Key") == ""
		}},
}

// headOf returns the fields of a request that net/http has read before.
func headOf(raw []byte) http.Header {
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
	if err != nil {
		return http.Header{}
	}
	return req.Header
}

// twice: the head has a field of one of these names more than once.
func twice(raw []byte, names ...string) bool {
	h := headOf(raw)
	return slices.ContainsFunc(names, func(name string) bool { return len(h.Values(name)) > 1 })
}

func pathOf(target string) string {
	path, _, _ := strings.Cut(target, "?")
	return path
}

// aboveRoot: more of its segments lead up than down.
func aboveRoot(target string) bool {
	path, err := url.PathUnescape(pathOf(target))
	depth := 0
	for _, segment := range strings.Split(path, "/")[1:] {
		switch segment {
		case ".":
		case "..":
			if depth--; depth < 0 {
				return true
			}
		default:
			depth++
		}
	}
	return err != nil
}
