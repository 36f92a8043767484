package conformance

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
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
	net.Listener
	answer []byte // nil: 200 with two bytes

	mu   sync.Mutex // guards all below
	got  []seen
	busy int
}

func newOrigin(addr string) (*origin, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	o := &origin{Listener: l}
	go o.accept()
	return o, nil
}

func (o *origin) accept() {
	for {
		c, err := o.Accept()
		if err != nil {
			return
		}
		o.mu.Lock()
		o.busy++
		o.mu.Unlock()
		go o.serve(c)
	}
}

func (o *origin) serve(c net.Conn) {
	defer func() {
		o.mu.Lock()
		o.busy--
		o.mu.Unlock()
		_ = c.Close()
	}()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	var raw bytes.Buffer
	r, err := http.ReadRequest(bufio.NewReader(io.TeeReader(c, &raw)))
	var s seen
	if err == nil {
		s.path = r.RequestURI
		_, err = io.Copy(io.Discard, r.Body)
		s.whole = err == nil
	}
	s.raw = raw.Bytes()
	if malformed(err) {
		s.fault = err
	}
	if len(s.raw) == 0 {
		return
	}
	o.mu.Lock()
	o.got = append(o.got, s)
	answer := o.answer
	o.mu.Unlock()
	if !s.whole {
		return
	}
	if answer == nil {
		answer = []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
	}
	_, _ = c.Write(answer)
	if tcp, ok := c.(*net.TCPConn); ok { // whoever closes with bytes unread resets
		_ = tcp.CloseWrite()
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		_, _ = io.Copy(io.Discard, c)
	}
}

// take gives what came, once all connections have ended, and forgets it.
func (o *origin) take() []seen {
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(200 * time.Microsecond) {
		o.mu.Lock()
		if o.busy == 0 || time.Now().After(end) {
			got := o.got
			o.got = nil
			o.mu.Unlock()
			return got
		}
		o.mu.Unlock()
	}
}

func (o *origin) say(answer []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer = answer
}

// quiet is how long a proxy may say nothing before the client ends its side: it
// waits for the rest of a body then.
const quiet = 2 * time.Second

// exchange sends raw on a connection of its own and gives all that comes back.
func exchange(addr, raw string) []byte {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil
	}
	defer c.Close()
	sent := make(chan struct{})
	go func() { defer close(sent); _, _ = io.WriteString(c, raw) }()
	defer func() { _ = c.SetDeadline(time.Unix(1, 0)); <-sent }()
	var all []byte
	buf := make([]byte, 64<<10)
	for ended := false; ; {
		_ = c.SetReadDeadline(time.Now().Add(quiet))
		n, err := c.Read(buf)
		all = append(all, buf[:n]...)
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && !ended:
			ended = true
			_ = c.(*net.TCPConn).CloseWrite()
		default:
			return all
		}
	}
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
	answers := exchange(addr, c.raw+probe)
	v := verdict{statuses: statusesOf(answers, c.raw)}
	for _, s := range o.take() {
		if p := check(s.raw, requestLine); p != "" && v.problem == "" {
			v.problem = p
		}
		if s.path == "/probe" {
			continue
		}
		if s.whole || s.fault != nil {
			v.forwards++
		}
		if s.fault != nil && v.problem == "" {
			v.problem = "net/http: " + s.fault.Error()
		}
		if s.whole || s.fault != nil { // how much came of others is a matter of time
			v.got = append(v.got, strings.ReplaceAll(plain(s.raw), o.Addr().String(), "upstream"))
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

// statusesOf reads answers, to a request and its probe.
func statusesOf(answers []byte, raw string) (all []int) {
	method, _, _ := strings.Cut(raw, " ")
	r := bufio.NewReader(bytes.NewReader(answers))
	for {
		res, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			return all
		}
		_, _ = io.Copy(io.Discard, res.Body)
		if res.StatusCode >= 200 {
			all = append(all, res.StatusCode)
			method = "GET"
		}
	}
}

// response lets the upstream answer a GET through the proxy at addr with a case.
func response(addr string, o *origin, c *testCase) (v verdict) {
	o.say([]byte(c.raw))
	defer o.say(nil)
	answer := exchange(addr, "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
	o.take()
	v = verdict{problem: check(afterInterim(answer), statusLine)}
	defer func() {
		if v.forwards > 0 {
			v.got = []string{plain(answer)}
		}
	}()
	r := bufio.NewReader(bytes.NewReader(answer))
	for {
		res, err := http.ReadResponse(r, nil)
		if malformed(err) {
			v.text, v.forwards, v.problem = "forwarded", 1, "net/http: "+err.Error()
			return v
		}
		if err != nil {
			v.text = "closed"
			return v
		}
		if res.StatusCode < 200 {
			continue
		}
		_, err = io.Copy(io.Discard, res.Body)
		v.statuses = []int{res.StatusCode}
		switch {
		case res.StatusCode == http.StatusBadGateway:
			v.text = "refused 502"
		case malformed(err):
			v.text, v.forwards, v.problem = "forwarded", 1, "net/http: "+err.Error()
		case err != nil:
			v.text = "cut"
		default:
			v.text, v.forwards = "forwarded", 1
		}
		return v
	}
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
