package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/bench/conformance"
	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// smugglingAttacks hide a request in another one, for a parser that sees its end elsewhere. The upstream
// may only get requests that net/http finds in the client's bytes, with the same bodies.
var smugglingAttacks = []attack{
	{name: "request smuggling by HTTP/1.1", conns: 32, bound: baseMemory + 32*perSlow, why: "32 requests", prepare: smuggling(false)},
	{name: "request smuggling by HTTP/2", conns: 16, bound: baseMemory + 16*perStream, why: "16 requests", prepare: smuggling(true)},
}

// smuggleStage compares what clients sent with what the upstream got.
type smuggleStage struct {
	*stage
	sent atomic.Uint64

	mu    sync.Mutex        // guards what follows
	meant map[string]bool   // targets with their bodies
	said  map[string]string // in which bytes or fields, by target
}

func smuggling(two bool) func(st *stage) error {
	return func(st *stage) error {
		g := &smuggleStage{stage: st, meant: map[string]bool{}, said: map[string]string{}}
		st.spec.Upstream = "http://" + st.Record(&rig.Recorder{Begin: func() (rig.Take, func([]byte)) { return g.take, nil }})
		table := smuggles()
		st.connection = func(s *attacker) error {
			if two {
				return s.askByHTTP2(g.smuggle2, func(*http.Response) {})
			}
			stream, own := g.smuggle(table)
			return s.ask(s.addr, string(stream), quietEnough, func(h *http.Response) { // it answers what was sent on its connection
				if asked(h) != "" && !own[originForm(asked(h))] {
					g.Add("a client got the answer to %.300q; it had sent %.3000q", asked(h), stream)
				}
			})
		}
		const seen = "requests at the upstream"
		st.needs = needs{seen: 20}
		st.judge = func(*rig.Proxy) string {
			return fmt.Sprintf("%d whole requests in what clients sent; %d at the upstream, each of them one of those, with its body; %d others, or answers to somebody else", len(g.meant), g.Counted(seen), g.N())
		}
		return nil
	}
}

// take judges a request at the upstream. It must have the form that all parsers read alike.
func (s *smuggleStage) take(m rig.Message, err error) (response string, again bool) {
	if doubt := conformance.CheckRequest(m.Raw); doubt != "" || conformance.Malformed(err) {
		s.Add("the upstream was sent a doubtful request: %s (%v): %.500q", doubt, err, m.Raw)
	}
	if err != nil {
		return "", false // cut off, and nobody takes it for whole
	}
	s.took(m.Target, m.Body)
	response = fmt.Sprintf("HTTP/1.1 200 OK\r\n%s: %s\r\nContent-Length: %d\r\n\r\n", askedField, m.Target, len(good))
	if m.Method != http.MethodHead {
		response += good
	}
	return response, true
}

// quietEnough is how long a client waits for more responses.
const quietEnough = 100 * time.Millisecond

// mark stands for the number of a request.
const mark = "@NUMBER@"

func plain(target string) string { return "GET " + target + " HTTP/1.1\r\nHost: a.example\r\n\r\n" }

// hidden is the request that is hidden in another one.
var hidden = plain("/hidden/" + mark)

// smuggles are the requests of bench/conformance, and each framing that was ever read in two ways before a body
// with a request in it.
func smuggles() (all []string) {
	for _, raw := range conformance.Requests() {
		all = append(all, strings.ReplaceAll(raw, " / HTTP/1.1", " /c/"+mark+" HTTP/1.1"))
	}
	for _, framing := range []string{
		"Content-Length: %d\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: %d", "Content-Length: %d\r\nContent-Length: 0", "Content-Length: 0\r\nContent-Length: %d", "Content-Length: %d, 0", "Content-Length: +%d",
		"Content-Length: 0\r\n %d", "Content-Length:\r\n %d", "Content-Length : %d", "Content-Length\t: %d", "Content-Length: %d\nX: y", "X: y\nContent-Length: %d", "X: y\rContent-Length: %d", "X: \x00\r\nContent-Length: %d", "Content-Length: 0x%x", "Content-Length: %d\x0b", "Content_Length: %d", "Connection: Content-Length\r\nContent-Length: %d",
		"Transfer-Encoding: xchunked\r\nX: %d", "Transfer-Encoding : chunked\r\nX: %d", "Transfer-Encoding:\tchunked\r\nX: %d", "Transfer-Encoding: \x0bchunked\r\nX: %d", "X: y\nTransfer-Encoding: chunked\r\nX: %d", "Transfer-Encoding\r\n : chunked\r\nX: %d", "Transfer-Encoding:\r\n chunked\r\nX: %d",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: cow\r\nX: %d", "Transfer-Encoding: cow, chunked\r\nX: %d", "Transfer-Encoding: \"chunked\"\r\nX: %d", "Transfer-Encoding: chunked, identity\r\nX: %d", "Transfer-Encoding: chunked\r\nConnection: transfer-encoding\r\nX: %d", "Transfer_Encoding: chunked\r\nContent-Length: %d", "Expect: 100-continue\r\nContent-Length: %d", "Upgrade: h2c\r\nConnection: upgrade\r\nContent-Length: %d", "X: %d",
	} {
		head := "POST /s/" + mark + " HTTP/1.1\r\nHost: a.example\r\n"
		for _, body := range []string{hidden, "0\r\n\r\n" + hidden, fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(hidden), hidden), "0\r\nX: y\r\n\r\n" + hidden, "FFFFFFFFFFFFFFFF\r\n" + hidden, "10000000000000000\r\n" + hidden, "0;\n\r\n\r\n" + hidden, "1\r\na0\r\n\r\n" + hidden, "0\n\n" + hidden, "2;a=\"\r\n0\r\n\r\n" + hidden} {
			all = append(all, head+fmt.Sprintf(framing, len(hidden))+"\r\n\r\n"+body)
		}
	}
	return all
}

// smuggle makes a client's stream, and notes the requests that net/http reads in it.
func (s *smuggleStage) smuggle(table []string) (stream []byte, own map[string]bool) {
	n := s.sent.Add(1)
	r := rand.New(rand.NewPCG(n, 7))
	var b bytes.Buffer
	for range 1 + r.IntN(3) {
		one := []byte(table[r.IntN(len(table))])
		if r.IntN(2) == 0 {
			one = rig.Mutate(r, one)
		}
		b.Write(one)
	}
	b.WriteString("GET /end/" + mark + " HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
	stream = b.Bytes()
	for i := 0; bytes.Contains(stream, []byte(mark)); i++ {
		stream = bytes.Replace(stream, []byte(mark), fmt.Appendf(nil, "%d-%d", n, i), 1)
	}
	own = map[string]bool{}
	for rest := stream; len(rest) > 0; {
		var messages []rig.Message
		messages, rest, _ = rig.Split(rest)
		for _, m := range messages {
			s.mean(m.Target, m.Body, string(stream))
			own[originForm(m.Target)] = true
		}
		after, blank := bytes.CutPrefix(rest, []byte("\r\n")) // which a server is to skip before a request (RFC 9112 section 2.2)
		if rest = after; !blank {
			break
		}
	}
	return stream, own
}

func (s *smuggleStage) mean(target, body, said string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	target = originForm(target)
	s.meant[target+" "+body], s.said[target] = true, said
}

// originForm is a target without the scheme and authority that the proxy takes out.
func originForm(target string) string {
	if _, rest, is := strings.Cut(target, "://"); is && !strings.HasPrefix(target, "/") {
		if i := strings.IndexAny(rest, "/?"); i >= 0 {
			return "/" + strings.TrimPrefix(rest[i:], "/")
		}
		return "/"
	}
	return target
}

// took judges a request that the upstream has taken whole.
func (s *smuggleStage) took(target, body string) {
	if strings.HasPrefix(target, "/ok?") { // the others'
		return
	}
	s.mu.Lock()
	is, said := s.meant[originForm(target)+" "+body], s.said[originForm(target)]
	s.mu.Unlock()
	if s.Count("requests at the upstream", 1); !is {
		s.Add("the upstream took %.300q with the body %s, which no client sent; of %.2000q", target, body, said)
	}
}

// hiding are fields of HTTP/2 that would be more, or another framing, in HTTP/1.1; %s is a request.
var hiding = [][]string{
	{"x-a", "b\r\n\r\n%s"}, {"x-a", "b\r\nTransfer-Encoding: chunked"}, {"x-a\r\ntransfer-encoding", "chunked"}, {"x-a: b\r\nx-c", "d"}, {"x-a", "b\n\n%s"}, {"x-a", "b\r%s"}, {"x-a", "b\x00"}, {"x a", "b"}, {"x-a:", "b"}, {"X-A", "b"}, {"", "b"},
	{"transfer-encoding", "chunked"}, {"transfer-encoding", "chunked\r\n"}, {"content-length", "0"}, {"content-length", "5, 5"}, {"content-length", "-1"}, {"content-length", "99999999999999999999"}, {"content-length", "1\r\nx: y"}, {"connection", "content-length"}, {"connection", "keep-alive, x\r\n\r\n%s"}, {"upgrade", "h2c"}, {"te", "chunked"}, {"keep-alive", "1"}, {"proxy-connection", "x"}, {"expect", "100-continue\r\n\r\n%s"}, {"host", "b\r\n\r\n%s"}, {"host", "b.example"}, {"cookie", "a\r\n\r\n%s"},
	{":path", "/s/@NUMBER@ HTTP/1.1\r\nHost: b\r\n\r\n%s"}, {":method", "GET / HTTP/1.1\r\nHost: b\r\n\r\nGET"}, {":authority", "b\r\n\r\n%s"}, {":scheme", "http://b/ HTTP/1.1\r\n\r\n"}, {":path", ""}, {":path", "s"}, {":path", "/s /b"}, {":status", "200"}, {":unknown", "a"}, {"x-a", "plain"},
}

// smuggle2 makes a request of HTTP/2. What it hides is never to be taken; the request itself may be, with its whole body.
func (s *smuggleStage) smuggle2() (pairs []string, body string) {
	n := s.sent.Add(1)
	r := rand.New(rand.NewPCG(n, 8))
	number := strconv.FormatUint(n, 10)
	inside := strings.ReplaceAll(hidden, mark, number)
	target := "/s/" + number
	switch r.IntN(4) {
	case 0:
		body = inside
	case 1:
		body = "0\r\n\r\n" + inside
	case 2:
		body = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(inside), inside)
	}
	fields := [][]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "bench.test"}, {":path", target}}
	length0 := false
	for range 1 + r.IntN(2) {
		evil := hiding[r.IntN(len(hiding))]
		length0 = length0 || evil[0] == "content-length" && evil[1] == "0"
		value := strings.ReplaceAll(strings.ReplaceAll(evil[1], "%s", inside), mark, number)
		if r.IntN(4) == 0 {
			value = string(rig.Mutate(r, []byte(value)))
		}
		at := 0
		for at < 4 && fields[at][0] != evil[0] {
			at++
		}
		if at < 4 && r.IntN(2) == 0 {
			fields[at] = []string{evil[0], value}
		} else {
			fields = append(fields, []string{evil[0], value})
		}
	}
	for _, f := range fields {
		if f[0] == ":path" && !strings.ContainsAny(f[1], "\r\n \x00") {
			s.mean(f[1], bodyOf([]byte(body)), fmt.Sprintf("%q, %q", fields, body))
			if length0 {
				s.mean(f[1], bodyOf(nil), fmt.Sprintf("%q, %q", fields, body)) // a whole request, before what it must not have
			}
		}
		pairs = append(pairs, f...)
	}
	return pairs, body
}

// bodyOf is how a body is written down in a rig.Reading.
func bodyOf(b []byte) string {
	req, _ := http.NewRequest(http.MethodPost, "/", bytes.NewReader(b))
	r, _ := rig.ReadingOf(req)
	return r.Body
}
