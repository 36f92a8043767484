package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/request"
)

// What clients of the test below do. Every request carries a token of its own in each of its parts.
const (
	asksAgain    = "get"     // twice 503, then 200
	puts         = "put"     // likewise, with a body
	postsKeyless = "post"    // likewise, with a POST, whose key the proxy makes
	isHedged     = "slow"    // answered after the hedge was sent
	tooEarly     = "early"   // answered before its body was sent
	cutsUpload   = "cut"     // ends in the middle of its body
	leavesEarly  = "leave"   // ends while its request waits
	putsChunked  = "chunked" // as puts, with a chunked body
)

var ownKinds = []string{asksAgain, puts, postsKeyless, isHedged, tooEarly, cutsUpload, leavesEarly, putsChunked}

// owners is an upstream that checks whether each part of a request belongs to it.
type owners struct {
	t        *testing.T
	issued   sync.Map // tokens
	attempts sync.Map // token: *atomic.Int32
	keys     sync.Map // token: the key of its first attempt
	sends    atomic.Int32
	wrong    atomic.Int32
}

// token makes the token of a request that is about to be sent.
func (o *owners) token(kind string, client, n int) string {
	token := fmt.Sprintf("%s-%d-%d-%s", kind, client, n, strings.Repeat("x", (client*7+n*13)%60))
	o.issued.Store(token, true)
	return token
}

func ownBody(token string) string { return strings.Repeat(token+"\n", 1+len(token)*3) }

// request is one with the token in all its parts, as HTTP/1.1 has it.
func ownRequest(kind, token string) string {
	headers := fmt.Sprintf("%%s /%[1]s?q=%[1]s HTTP/1.1\r\nHost: a\r\nX-Request-Id: id-%[1]s\r\nX-Token: %[1]s\r\nX-Fill: %[1]s%[1]s%[1]s\r\n", token)
	body := ownBody(token)
	switch kind {
	case puts, cutsUpload, tooEarly:
		return fmt.Sprintf(headers, "PUT") + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	case postsKeyless:
		return fmt.Sprintf(headers, "POST") + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	case putsChunked:
		return fmt.Sprintf(headers, "PUT") + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	}
	return fmt.Sprintf(headers, "GET") + "\r\n"
}

var ownFields = []string{"Accept-Encoding", "Content-Length", "Idempotency-Key", "User-Agent", "X-Fill", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
	"X-Request-Id", "X-Retryproxy-Attempt", "X-Token", "Via", "Forwarded"}

func (o *owners) complain(format string, args ...any) {
	if o.wrong.Add(1) <= 10 {
		o.t.Errorf(format, args...)
	}
}

func (o *owners) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.sends.Add(1)
	token := r.Header.Get("X-Token")
	kind, _, _ := strings.Cut(token, "-")
	if _, ok := o.issued.Load(token); !ok {
		o.complain("a request with the token %q, which no client sent", token)
		w.WriteHeader(500)
		return
	}
	o.checkHead(r, token)
	counted, _ := o.attempts.LoadOrStore(token, new(atomic.Int32))
	attempt := counted.(*atomic.Int32).Add(1)
	if kind == tooEarly {
		w.Header().Set("Connection", "close")
		w.WriteHeader(413)
		_, _ = io.WriteString(w, "own "+token)
		return
	}
	body, err := io.ReadAll(r.Body)
	want := ""
	if r.Method != "GET" {
		want = ownBody(token)
	}
	if string(body) != want && (err == nil || !strings.HasPrefix(want, string(body))) {
		o.complain("%s: its body is %.60q, %v", token, body, err)
	}
	switch {
	case kind == isHedged && attempt == 1:
		select {
		case <-time.After(20 * time.Millisecond):
		case <-r.Context().Done():
		}
	case kind != isHedged && (attempt <= 2 || kind == leavesEarly):
		w.WriteHeader(503)
	}
	_, _ = io.WriteString(w, "own "+token)
}

// checkHead checks all fields of a request.
func (o *owners) checkHead(r *http.Request, token string) {
	if r.URL.Path != "/"+token || r.URL.RawQuery != "q="+token || r.Header.Get("X-Request-Id") != "id-"+token || r.Header.Get("X-Fill") != token+token+token {
		o.complain("%s: %s %s, id %.100q, %.100q", token, r.Method, r.URL, r.Header.Get("X-Request-Id"), r.Header.Get("X-Fill"))
	}
	for name, values := range r.Header {
		if len(values) != 1 || !slices.Contains(ownFields, name) {
			o.complain("%s: the field %s: %.100q", token, name, values)
		}
	}
	key := r.Header.Get("Idempotency-Key")
	if first, known := o.keys.LoadOrStore(token, key); known && first != key || len(key) != 32 {
		o.complain("%s: the key %.100q, first %.100q", token, key, first)
	}
}

// check checks a response: it is the upstream's to this request, or ours about it.
func (o *owners) check(token, body string, headers http.Header) {
	if ids := headers["X-Request-Id"]; len(ids) != 1 || ids[0] != "id-"+token {
		o.complain("%s: the response has the ids %.200q", token, ids)
	}
	if body != "own "+token && !strings.Contains(body, `"request_id":"id-`+token+`"`) {
		o.complain("%s: the response is %.200q", token, body)
	}
}

// overHTTP1 sends some requests of each kind, one connection for those that it survives.
func (o *owners) overHTTP1(p *testProxy, client, rounds int) {
	c := p.Dial()
	for n := range rounds {
		kind := ownKinds[(client+n)%len(ownKinds)]
		token := o.token(kind, client, n)
		request := ownRequest(kind, token)
		switch kind {
		case cutsUpload:
			other := p.Dial()
			_, _ = io.WriteString(other.Conn, request[:len(request)-len(token)])
			other.Close()
		case leavesEarly:
			other := p.Dial()
			_, _ = io.WriteString(other.Conn, request)
			for range 1000 {
				if _, sent := o.attempts.Load(token); sent {
					break
				}
				time.Sleep(time.Millisecond)
			}
			other.Close()
		case tooEarly:
			other := p.Dial()
			_, _ = io.WriteString(other.Conn, request)
			if res, body, err := other.Response("PUT"); err == nil {
				o.check(token, body, res.Header)
			}
			other.Close()
		case asksAgain: // pipelined
			next, last := o.token(isHedged, client, 1000+n), o.token(puts, client, 2000+n)
			c.Send(request + ownRequest(isHedged, next) + ownRequest(puts, last))
			for _, token := range []string{token, next, last} {
				o.readOwn(c, token)
			}
		default:
			c.Send(request)
			o.readOwn(c, token)
		}
	}
}

func (o *owners) readOwn(c *peers.Client, token string) {
	res, body, err := c.Response("GET")
	if err != nil {
		o.complain("%s: %v", token, err)
		return
	}
	o.check(token, body, res.Header)
}

// overHTTP2 sends some requests of each kind as streams of a connection shared with others.
func (o *owners) overHTTP2(p *testProxy, client *http.Client, number, rounds int) {
	for n := range rounds {
		kind := ownKinds[(number+n)%len(ownKinds)]
		token := o.token(kind, number, n)
		ctx, cancel := context.WithTimeout(context.Background(), peers.Patience)
		method, body := "GET", io.Reader(nil)
		switch kind {
		case puts, putsChunked, tooEarly:
			method, body = "PUT", strings.NewReader(ownBody(token))
		case postsKeyless:
			method, body = "POST", strings.NewReader(ownBody(token))
		case cutsUpload:
			b := ownBody(token)
			method, body = "PUT", io.MultiReader(strings.NewReader(b[:len(b)/2]), readerOf(func([]byte) (int, error) { cancel(); return 0, io.ErrUnexpectedEOF }))
		case leavesEarly:
			time.AfterFunc(10*time.Millisecond, cancel)
		}
		req, err := http.NewRequestWithContext(ctx, method, "http://"+p.Addr+"/"+token+"?q="+token, body)
		if err != nil {
			panic(err)
		}
		req.Header = http.Header{"X-Request-Id": {"id-" + token}, "X-Token": {token}, "X-Fill": {token + token + token}}
		if res, err := client.Do(req); err == nil {
			var got bytes.Buffer
			if _, err := got.ReadFrom(res.Body); err == nil {
				o.check(token, got.String(), res.Header)
			}
			res.Body.Close()
		} else if kind != cutsUpload && kind != leavesEarly && kind != tooEarly {
			o.complain("%s: %v", token, err)
		}
		cancel()
	}
}

type readerOf func([]byte) (int, error)

func (f readerOf) Read(p []byte) (int, error) { return f(p) }

// Hundreds of requests wait, are hedged, cut off and responded to early, while the configuration
// is reloaded. Each attempt carries the ID, key, headers and body of its own request, and each
// response reaches its own client.
func TestEveryRequestKeepsItsOwnBytes(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	const http1, http2, rounds = 160, 40, 8
	o := &owners{t: t}
	u := httptest.NewServer(o)
	defer u.Close()
	var config Config
	p := startProxyTo(t, u.URL, func(c *Config) {
		peers.SpeakHTTP2(c)
		c.Default.Policy.Backoff = backoff.Fixed{Base: 20 * time.Millisecond}
		c.Default.Policy.MaxRetries = 4
		c.Default.HedgeAfter = peers.HedgeAfter(t, "5ms")
		c.Default.GenerateKey = true
		c.Default.RequestTimeout, c.Default.AttemptTimeout = time.Minute, 0
		config = *c
	})
	p.process.Waiting.Add(request.Crowd) // so that each that waits gives its buffers back
	var clients sync.WaitGroup
	for i := range http1 {
		clients.Go(func() { o.overHTTP1(p, i, rounds) })
	}
	shared := []*http.Client{peers.HTTP2Client(t, nil), peers.HTTP2Client(t, nil)}
	for i := range http2 {
		clients.Go(func() { o.overHTTP2(p, shared[i%2], http1+i, rounds) })
	}
	clients.Go(func() {
		for range 50 {
			next := config
			if err := p.Reload(&next); err != nil {
				t.Error(err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	clients.Wait()
	p.process.Waiting.Add(-request.Crowd)
	if n := o.sends.Load(); n < (http1+http2)*rounds {
		t.Errorf("only %d attempts came", n)
	}
	defer p.Seen.Lock()() // requests whose clients left may still end
	if p.Seen.HedgesSent == 0 || len(p.Seen.Waits) < request.Crowd {
		t.Errorf("%d hedges and %d waits: the test shows little", p.Seen.HedgesSent, len(p.Seen.Waits))
	}
}
