package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// netHTTP is the name of net/http's server.
const netHTTP = "net/http"

// streamField tells net/http's server behind nginx or HAProxy which client port a request came from.
const streamField = "X-Two-Parsers"

// reader is a server that reads requests: net/http's, or nginx or HAProxy in front of net/http's.
type reader struct {
	name, addr string

	mu   sync.Mutex               // guards what follows
	read map[string][]rig.Reading // by the stream, a port, that it came from
}

// newReader starts net/http's server.
func newReader(bed *rig.Bed, name string) *reader {
	r := &reader{name: name, read: map[string][]rig.Reading{}}
	r.addr = bed.Serve(r)
	return r
}

func (by *reader) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	r, err := rig.ReadingOf(req)
	if err != nil {
		return // it was cut off, and nobody takes it for whole
	}
	_, stream, _ := net.SplitHostPort(req.RemoteAddr)
	if by.name != netHTTP {
		stream = req.Header.Get(streamField)
	}
	by.mu.Lock()
	defer by.mu.Unlock()
	by.read[stream] = append(by.read[stream], r)
}

// take returns the requests of a stream, and forgets them.
func (by *reader) take(stream string) []rig.Reading {
	by.mu.Lock()
	defer by.mu.Unlock()
	got := by.read[stream]
	delete(by.read, stream)
	return got
}

// peers forward to net/http's server, and refuse as little as possible.
var peers = []rig.Peer{
	{Program: "nginx", Args: []string{"-p", "{dir}", "-e", "stderr", "-c"}, Config: `
daemon off; master_process off; pid {dir}/pid;
events { worker_connections 1024; }
http {
  access_log off; client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
  merge_slashes off; large_client_header_buffers 8 256k; client_max_body_size 0; client_body_buffer_size 1m; keepalive_requests 100000; lingering_time 1s; lingering_timeout 200ms;
  server { listen {listen}; location / {
    proxy_pass http://{upstream}; proxy_http_version 1.1; proxy_set_header Host $http_host; proxy_set_header Connection ""; proxy_set_header ` + streamField + ` $remote_port; proxy_ignore_client_abort on;
  } }
}
`},
	{Program: "haproxy", Args: []string{"-db", "-f"}, Config: `
global
  tune.bufsize 262144
  tune.http.maxhdr 1000
defaults
  mode http
  timeout connect 3s
  timeout client 10s
  timeout server 10s
listen all
  bind {listen}
  http-request set-header ` + streamField + ` %[src_port]
  server one {upstream}
`},
}

// startReaders starts all readers.
func startReaders(bed *rig.Bed) (all []*reader, children []*rig.Proxy, err error) {
	for _, p := range append([]rig.Peer{{Program: netHTTP}}, peers...) {
		r := newReader(bed, p.Program)
		if all = append(all, r); p.Config == "" {
			continue
		}
		child, err := bed.StartPeer(p, r.addr, nil)
		if err != nil {
			return nil, nil, err
		}
		r.addr, children = child.Addr, append(children, child)
	}
	return all, children, nil
}

// ending follows the whole requests of a connection. A parser that misreads the end of a request swallows it,
// or reads something before it.
const ending = "GET /ending HTTP/1.1\r\nHost: ending.example\r\nConnection: close\r\n\r\n"

// compare sends the bytes of a connection to all readers and compares what they read.
func compare(r *rig.Findings, readers []*reader, all []byte) {
	messages, rest, fault := rig.Split(all)
	r.Count(connections, 1)
	r.Count(requests, int64(len(messages)))
	r.Count(overHTTP2, int64(bytes.Count(all, []byte(markOfHTTP2))))
	if rest != nil && fault == nil {
		r.Count(cutOff, 1)
	}
	if fault != nil {
		r.Add("http.ReadRequest: %v\n  of %.3000q", fault, all)
	}
	for _, by := range readers {
		by.readAll(r, messages)
		if rest != nil && fault == nil {
			if got, _, err := by.show(rest, true); err != nil || len(got) > 0 {
				r.Add("%s reads %v in a request that is cut off (%v)\n  %.3000q", by.name, got, err, rest)
			}
		}
	}
}

// readAll sends messages to a reader. If a rule explains why it refuses one, the messages behind that are
// sent again.
func (by *reader) readAll(r *rig.Findings, messages []rig.Message) {
	for len(messages) > 0 {
		var raw []byte
		var want []rig.Reading
		for _, m := range messages {
			raw, want = append(raw, m.Raw...), append(want, m.Reading)
		}
		want = append(want, rig.Reading{Method: "GET", Target: "/ending", Host: "ending.example", Body: emptyBody})
		got, statuses, err := by.show(append(raw, ending...), false)
		n := 0
		for n < len(got) && n < len(want) && got[n] == want[n] {
			n++
		}
		if n == len(want) && n == len(got) {
			return
		}
		if n == len(got) && n < len(messages) && n < len(statuses) {
			if k := ruleFor(by.name, statuses[n], &messages[n]); k != nil {
				r.Count(k.name(), 1)
				messages = messages[n+1:]
				continue
			}
		}
		r.Add("%s reads otherwise (%v), and answers %v:\n  %v\n  instead of\n  %v\n  %.3000q", by.name, err, statuses, got, want, raw)
		return
	}
}

var emptyBody = func() string {
	req, _ := http.NewRequest("GET", "/", http.NoBody)
	r, _ := rig.ReadingOf(req)
	return r.Body
}()

// patience bounds one connection to a reader.
const patience = 20 * time.Second

// show sends bytes to a reader. It returns what the reader read and the statuses of its responses. If cut,
// the bytes end within a request.
func (by *reader) show(raw []byte, cut bool) ([]rig.Reading, []int, error) {
	quiet := patience
	if cut {
		quiet = 20 * time.Millisecond
	}
	answers, port, err := rig.Exchange(by.addr, raw, quiet)
	var methods []string
	asked, _, _ := rig.Split(raw)
	for _, m := range asked {
		methods = append(methods, m.Method)
	}
	return by.take(port), rig.Statuses(answers, methods...), err
}

// rule is a known and harmless difference: a reader refuses the request outright, so it cannot take it for
// another one.
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

// headOf returns the headers of a request that net/http can read.
func headOf(raw []byte) http.Header {
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
	if err != nil {
		return http.Header{}
	}
	return req.Header
}

// twice reports whether one of these headers is there more than once.
func twice(raw []byte, names ...string) bool {
	h := headOf(raw)
	return slices.ContainsFunc(names, func(name string) bool { return len(h.Values(name)) > 1 })
}

func pathOf(target string) string {
	path, _, _ := strings.Cut(target, "?")
	return path
}

// aboveRoot reports whether a target leads above the root.
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
