package conformance

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// probe follows every request on its connection: who reads a request's end
// elsewhere than its sender sees it swallowed, or doubled.
const probe = "GET /probe HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"

// seen is a request as it reached the upstream.
type seen struct {
	raw   []byte
	path  string // as net/http reads it
	whole bool   // net/http reads it to the end of its body
	fault error  // why not, where it was not just cut off
}

// origin is an upstream that keeps the bytes it gets, and answers every request
// by net/http's reading of it, on a connection each.
type origin struct {
	rig.Recorder
	addr string

	mu     sync.Mutex // guards all below
	answer string
	got    []*seen // in the order in which they came
}

const usual = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"

func newOrigin(bed *rig.Bed) *origin {
	o := &origin{answer: usual}
	o.Begin = func() (rig.Take, func([]byte)) {
		s := &seen{}
		return func(m rig.Message, err error) (string, bool) {
			s.path, s.whole = m.Target, err == nil
			if Malformed(err) {
				s.fault = err
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			o.got = append(o.got, s)
			return o.answer, false
		}, func(all []byte) { s.raw = all }
	}
	o.addr = bed.Record(&o.Recorder)
	return o
}

// take returns what came, once all connections have ended, and forgets it.
func (o *origin) take() (got []*seen) {
	o.Wait(2 * time.Second)
	o.mu.Lock()
	defer o.mu.Unlock()
	got, o.got = o.got, nil
	return got
}

func (o *origin) say(answer string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer = answer
}

// quiet is how long a proxy may say nothing before the client ends its side: it
// waits for the rest of a body then.
const quiet = 2 * time.Second

// exchange sends raw on a connection of its own and returns all that comes back.
func exchange(addr, raw string) []byte {
	all, _, _ := rig.Exchange(addr, []byte(raw), quiet) // a connection that is closed is an answer too
	return all
}

// verdict is what a proxy made of a case.
type verdict struct {
	statuses []int    // of the answers to the client, interim ones left out
	got      []string // what reached the other side, without what every proxy adds; probes left out
	forwards int      // whole messages among it
	problem  string   // what in it can be read in two ways
	text     string   // in short: "forwarded", "refused 400", "closed", "cut"
}

// request shows a request to the proxy at addr, in front of o.
func request(addr string, o *origin, c *testCase) verdict {
	method, _, _ := strings.Cut(c.raw, " ")
	v := verdict{statuses: rig.Statuses(exchange(addr, c.raw+probe), method)}
	for _, s := range o.take() {
		if p := CheckRequest(s.raw); p != "" && v.problem == "" {
			v.problem = p
		}
		if s.path == "/probe" {
			continue
		}
		if s.fault != nil && v.problem == "" {
			v.problem = "net/http: " + s.fault.Error()
		}
		if s.whole || s.fault != nil { // how much came of others is a matter of time
			v.forwards++
			v.got = append(v.got, strings.ReplaceAll(plain(s.raw), o.addr, "upstream"))
		}
	}
	switch {
	case v.forwards > 0:
		v.text = "forwarded"
	case len(v.statuses) == 0:
		v.text = "closed"
	default:
		v.text = fmt.Sprintf("refused %d", v.statuses[0])
	}
	return v
}

// response lets the upstream answer a GET through the proxy at addr with a case.
func response(addr string, o *origin, c *testCase) (v verdict) {
	o.say(c.raw)
	defer o.say(usual)
	answer := exchange(addr, "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
	o.take()
	v = verdict{problem: check(afterInterim(answer), statusLine), text: "closed"}
	r := bufio.NewReader(bytes.NewReader(answer))
	res, err := http.ReadResponse(r, nil)
	for err == nil && res.StatusCode < 200 {
		res, err = http.ReadResponse(r, nil)
	}
	if err == nil {
		v.statuses, v.text = []int{res.StatusCode}, "cut"
		_, err = io.Copy(io.Discard, res.Body)
	}
	switch {
	case res != nil && res.StatusCode == http.StatusBadGateway:
		v.text = "refused 502"
	case Malformed(err):
		v.problem = "net/http: " + err.Error()
		fallthrough
	case err == nil:
		final := afterInterim(answer)
		v.text, v.forwards, v.got = "forwarded", 1, []string{string(answer[:len(answer)-len(final)]) + plain(final)}
	}
	return v
}

// afterInterim is the final one of the responses in p.
func afterInterim(p []byte) []byte {
	for bytes.HasPrefix(p, []byte("HTTP/1.1 1")) {
		_, rest, _ := bytes.Cut(p, []byte("\r\n\r\n"))
		p = rest
	}
	return p
}

// plain leaves out what differs from run to run and what proxies add about themselves.
func plain(raw []byte) string {
	head, body, whole := bytes.Cut(raw, []byte("\r\n\r\n"))
	var kept []string
	for line := range strings.SplitSeq(string(head), "\r\n") {
		name, _, _ := strings.Cut(strings.ToLower(line), ":")
		switch name {
		case "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-request-id", "x-retryproxy-attempt", "date", "server":
			continue
		}
		kept = append(kept, line)
	}
	text := strings.Join(kept, "\r\n")
	if whole {
		text += "\r\n\r\n" + string(body)
	}
	return text
}
