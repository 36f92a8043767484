package proxy

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/eventstream"
)

const (
	eventStreamType = "text/event-stream; charset=utf-8"
	streamHeaders   = "HTTP/1.1 200 OK\r\nContent-Type: " + eventStreamType + "\r\nTransfer-Encoding: chunked\r\n\r\n"

	prelude     = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n: a comment\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\n"
	firstText   = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"Hi\"}}\n\n"
	overloaded  = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"
	serverError = "data: {\"error\":{\"type\":\"server_error\",\"message\":\"oops\"}}\n\n"
	noQuota     = "data: {\"error\":{\"type\":\"insufficient_quota\",\"code\":\"insufficient_quota\"}}\n\n"
	tryAgain    = "data: {\"error\":{\"type\":\"tokens\",\"code\":\"rate_limit_exceeded\",\"message\":\"Please try again in 7s.\"}}\n\n"
)

// longPrelude is the beginning of a stream of the Responses API, which repeats the request's instructions.
var longPrelude = strings.Repeat("event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"error\":null,\"instructions\":\""+strings.Repeat("x", 120<<10)+"\"}}\n\n", 2)

// eventStream is a whole response with the events given.
func eventStream(events string) string {
	return streamHeaders + chunk(events) + "0\r\n\r\n"
}

func chunk(s string) string {
	return strings.TrimSpace(hex(len(s))) + "\r\n" + s + "\r\n"
}

func hex(n int) string {
	const digits = "0123456789abcdef"
	text := ""
	for ; n > 0; n /= 16 {
		text = digits[n%16:n%16+1] + text
	}
	return text
}

// holdsStreams is a route in front of the API of a language model.
func holdsStreams(t *testing.T, c *Config) {
	rejected("429,503,529")(t, c)
	c.Default.FirstContentTimeout = time.Minute
}

// An event stream is retried like any other response until its first content, and never after it.
func TestStreamsAreRetriedUntilTheirFirstContent(t *testing.T) {
	good := prelude + firstText + "data: [DONE]\n\n"
	for name, tc := range map[string]struct {
		request string
		first   string // what the first attempt gets
		want    string // body; "" for that of the good second stream
		outcome policy.Outcome
	}{
		"overloaded at once":          {postABC, eventStream(overloaded), "", policy.OutcomeRecovered},
		"overloaded after a prelude":  {postABC, eventStream(prelude + overloaded), "", policy.OutcomeRecovered},
		"overloaded in small pieces":  {postABC, streamHeaders + chunk(overloaded[:9]) + chunk(overloaded[9:40]) + chunk(overloaded[40:]) + "0\r\n\r\n", "", policy.OutcomeRecovered},
		"rate limited":                {postABC, eventStream(strings.Replace(tryAgain, "7s", "2ms", 1)), "", policy.OutcomeRecovered},
		"an error of unknown effect":  {get("/"), eventStream(serverError), "", policy.OutcomeRecovered},
		"the same, of a POST":         {postABC, eventStream(serverError), serverError, policy.OutcomeGaveUpNotIdempotent},
		"the account is used up":      {postABC, eventStream(prelude + noQuota), prelude + noQuota, policy.OutcomeGaveUpQuotaExhausted},
		"an error after the content":  {postABC, eventStream(firstText + overloaded), firstText + overloaded, policy.OutcomeSuccess},
		"a refused prompt":            {postABC, eventStream(strings.Replace(serverError, "server_error", "invalid_request_error", 1)), strings.Replace(serverError, "server_error", "invalid_request_error", 1), policy.OutcomeSuccess},
		"an error in its last line":   {postABC, eventStream(prelude + strings.TrimSpace(overloaded)), "", policy.OutcomeRecovered},
		"lines that end with CR":      {postABC, eventStream(strings.ReplaceAll(prelude+overloaded, "\n", "\r")), "", policy.OutcomeRecovered},
		"a long prelude":              {postABC, eventStream(longPrelude + overloaded), "", policy.OutcomeRecovered},
		"a long prelude, with length": {postABC, rawBody(200, longPrelude+overloaded, "Content-Type: "+eventStreamType), "", policy.OutcomeRecovered},
		"a long prelude, used up":     {postABC, eventStream(longPrelude + noQuota), longPrelude + noQuota, policy.OutcomeGaveUpQuotaExhausted},
		"an end without content":      {postABC, eventStream(prelude), prelude, policy.OutcomeSuccess},
		"a cut before the content":    {get("/"), streamHeaders + chunk(prelude) + "\x00", "", policy.OutcomeRecovered},
		"more prelude than is held":   {postABC, eventStream(strings.Repeat(prelude, 3000) + overloaded), strings.Repeat(prelude, 3000) + overloaded, policy.OutcomeSuccess},
		"compressed":                  {postABC, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n" + eventStream(overloaded)[len("HTTP/1.1 200 OK\r\n"):], overloaded, policy.OutcomeSuccess},
		"not an event stream":         {postABC, "HTTP/1.1 200 OK\r\nContent-Type: text/event-streams\r\n" + eventStream(overloaded)[len(streamHeaders)-len("Transfer-Encoding: chunked\r\n\r\n"):], overloaded, policy.OutcomeSuccess},
		"a status that is a failure":  {postABC, rawBody(503, overloaded, "Content-Type: "+eventStreamType), "", policy.OutcomeRecovered},
		"a length in place of chunks": {postABC, rawBody(200, overloaded, "Content-Type: "+eventStreamType), "", policy.OutcomeRecovered},
		"until the connection's end":  {postABC, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + overloaded, "", policy.OutcomeRecovered},
	} {
		t.Run(name, func(t *testing.T) {
			u := startUpstream(t, firstThen(tc.first, eventStream(good)))
			p := startProxy(t, u, func(c *Config) { holdsStreams(t, c) })
			want, sends := tc.want, 1
			if want == "" {
				want, sends = good, 2
			}
			p.dial().send(tc.request).want(200, want)
			p.wantOutcome(0, tc.outcome)
			if u.sends() != sends {
				t.Errorf("%d sent, want %d", u.sends(), sends)
			}
		})
	}
}

// firstThen responds with first and then with second. A first that ends with a NUL is cut off there.
func firstThen(first, second string) func(*upConn) {
	cut, ends := strings.CutSuffix(first, "\x00")
	if !ends {
		return script(first, second)
	}
	rest := script(second)
	return func(c *upConn) {
		if c.n > 1 {
			rest(c)
			return
		}
		discardBody(c, c.head())
		c.say("%s", cut)
	}
}

// A stream that was cut before its content reached no client. A request that may have done work is
// not repeated.
func TestACutBeforeTheContentOfAPostIsAnError(t *testing.T) {
	u := startUpstream(t, func(c *upConn) {
		discardBody(c, c.head())
		c.say(streamHeaders + chunk(prelude))
	})
	p := startProxy(t, u, func(c *Config) { holdsStreams(t, c) })
	res, body, err := p.dial().send(postABC).response("POST")
	if err != nil || res.StatusCode != 502 || res.Header.Get("X-Retryproxy-Reason") != "not_idempotent" || u.sends() != 1 {
		t.Errorf("%v %q %v, %d sent", res, body, err, u.sends())
	}
}

// A cut after the content reaches the client as a cut, and is no success.
func TestAStreamThatIsCutIsNoSuccess(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Minute} {
		u := startUpstream(t, func(c *upConn) {
			discardBody(c, c.head())
			c.say(streamHeaders + chunk(firstText) + chunk("data: more\n\n"))
		})
		p := startProxy(t, u, func(c *Config) { holdsStreams(t, c); c.Default.FirstContentTimeout = timeout })
		_, body, err := p.dial().send(get("/")).response("GET")
		if err == nil || body != firstText+"data: more\n\n" {
			t.Errorf("%q, %v", body, err)
		}
		p.wantOutcome(0, policy.OutcomeStreamCut)
	}
}

// Without the setting, every byte is relayed at once.
func TestStreamsAreNotHeldByDefault(t *testing.T) {
	u := startUpstream(t, script(eventStream(overloaded)))
	p := startProxy(t, u, nil)
	p.dial().send(get("/")).want(200, overloaded)
	p.wantOutcome(0, policy.OutcomeSuccess)
}

// In a dry run nothing is held back or retried.
func TestADryRunHoldsNoStream(t *testing.T) {
	u := startUpstream(t, script(eventStream(overloaded)))
	p := startProxy(t, u, func(c *Config) { holdsStreams(t, c); c.Default.DryRun = true })
	p.dial().send(get("/")).want(200, overloaded)
	p.wantOutcome(0, policy.OutcomeSuccess)
}

// The wait that the error of a stream asks for is obeyed.
func TestAWaitInAStreamIsObeyed(t *testing.T) {
	up := &timed{first: []string{eventStream(tryAgain)}}
	inMemory(t, up.handle, func(c *Config) { holdsStreams(t, c) }, func(t *testing.T, m *memory) {
		m.client().send(postABC).want(200, "ok")
		if d := up.at[1].Sub(up.at[0]); d < 7*time.Second || d > 7*time.Second+2*time.Millisecond {
			t.Errorf("retried after %v, want 7s", d)
		}
	})
}

// A silent stream is relayed after the time for its content, whether it may be retried or not: it may be
// attached to a running job.
func TestASilentStreamIsRelayed(t *testing.T) {
	const keyed = "POST / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 3\r\n\r\nabc"
	for name, request := range map[string]string{"GET": get("/"), "POST": postABC, "POST with a key": keyed} {
		t.Run(name, func(t *testing.T) {
			handle := func(c *upConn) {
				discardBody(c, c.head())
				c.say("%s", streamHeaders+chunk(prelude))
				time.Sleep(90 * time.Second)
				c.say("%s", chunk(firstText)+"0\r\n\r\n")
			}
			inMemory(t, handle, func(c *Config) {
				holdsStreams(t, c)
				c.Default.RequestTimeout, c.Default.BodyIdleTimeout = 0, 2*time.Minute
			}, func(t *testing.T, m *memory) {
				b := readBody(m.client().send(request))
				time.Sleep(59 * time.Second)
				synctest.Wait()
				if body := b.text(); body != "" {
					t.Errorf("after 59 s the client has %q", body)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if body := b.text(); body != prelude {
					t.Errorf("after 61 s the client has %q, want %q", body, prelude)
				}
				<-b.ended
				if body := b.text(); body != prelude+firstText {
					t.Errorf("body %q", body)
				}
				m.wantOutcome(0, policy.OutcomeSuccess)
				if n := m.up.sends(); n != 1 {
					t.Errorf("%d sent, want 1", n)
				}
			})
		})
	}
}

// A stream is held back for at most half of the time that its client waits for a byte.
func TestAStreamIsRelayedBeforeItsClientLeaves(t *testing.T) {
	for name, header := range map[string]string{"read timeout": "X-Stainless-Read-Timeout: 2", "timeout": "X-Stainless-Timeout: 2", "deadline": "X-Request-Timeout: 2"} {
		t.Run(name, func(t *testing.T) {
			handle := func(c *upConn) {
				discardBody(c, c.head())
				c.say("%s", streamHeaders)
				for range 4 {
					c.say("%s", chunk(": processing\n\n"))
					time.Sleep(900 * time.Millisecond)
				}
				c.say("%s", chunk(firstText)+"0\r\n\r\n")
			}
			inMemory(t, handle, func(c *Config) { holdsStreams(t, c) }, func(t *testing.T, m *memory) {
				b := readBody(m.client().send("POST / HTTP/1.1\r\nHost: a\r\n" + header + "\r\nContent-Length: 3\r\n\r\nabc"))
				time.Sleep(1001 * time.Millisecond)
				synctest.Wait()
				if body := b.text(); !strings.HasPrefix(body, ": processing") {
					t.Errorf("after half of its time the client has %q", body)
				}
				<-b.ended
				if body := b.text(); body != strings.Repeat(": processing\n\n", 4)+firstText {
					t.Errorf("body %q", body)
				}
			})
		})
	}
}

// A comment or ping that arrives later than 10 s is passed on at once, with all that was held back
// and nothing else. From then on the attempt is final. A stream that is silent for longer is held.
func TestLateCommentsAndPingsArePassedOn(t *testing.T) {
	const comment, ping = ": processing\n\n", "event: ping\ndata: {\"type\": \"ping\"}\n\n"
	for name, tc := range map[string]struct {
		pieces []string // one every 4 s, the first at once
		seen   string   // what the client has 13 s after the request
		want   string   // what it has in the end
		sends  int
	}{
		"comments":                        {[]string{comment, comment, comment, comment, firstText}, strings.Repeat(comment, 4), strings.Repeat(comment, 4) + firstText, 1},
		"a comment without an empty line": {[]string{prelude, "", "", ":\n", firstText}, prelude + ":\n", prelude + ":\n" + firstText, 1},
		"pings, then an error":            {[]string{prelude, ping, ping, ping, overloaded}, prelude + ping + ping + ping, prelude + ping + ping + ping + overloaded, 1},
		"an error after early pings":      {[]string{prelude, ping, ping, overloaded}, firstText, firstText, 2},
		"an error in two pieces":          {[]string{ping, ping, ping + overloaded[:20], overloaded[20:40], overloaded[40:]}, "", firstText, 2},
		"silence, then an error":          {[]string{prelude, "", "", "", overloaded}, "", firstText, 2},
		"a comment behind the error":      {[]string{prelude, "", "", overloaded + comment}, firstText, firstText, 2},
	} {
		t.Run(name, func(t *testing.T) {
			handle := func(c *upConn) {
				discardBody(c, c.head())
				if c.n > 1 {
					c.say("%s", eventStream(firstText))
					return
				}
				c.say("%s", streamHeaders)
				for i, piece := range tc.pieces {
					if i > 0 {
						time.Sleep(4 * time.Second)
					}
					if piece != "" {
						c.say("%s", chunk(piece))
					}
				}
				c.say("0\r\n\r\n")
			}
			inMemory(t, handle, func(c *Config) {
				holdsStreams(t, c)
				c.Default.RequestTimeout = 0
			}, func(t *testing.T, m *memory) {
				b := readBody(m.client().send(postABC))
				time.Sleep(13 * time.Second)
				synctest.Wait()
				if seen := b.text(); seen != tc.seen {
					t.Errorf("after 13 s the client has %q, want %q", seen, tc.seen)
				}
				<-b.ended
				if body := b.text(); body != tc.want {
					t.Errorf("body %q, want %q", body, tc.want)
				}
				if n := m.up.sends(); n != tc.sends {
					t.Errorf("%d sent, want %d", n, tc.sends)
				}
			})
		})
	}
}

// arriving is the body of a response as far as it has arrived.
type arriving struct {
	ended chan struct{}

	mu   sync.Mutex // guards body
	body []byte
}

func (a *arriving) text() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return string(a.body)
}

// readBody reads the body of the next response in the background.
func readBody(c *client) *arriving {
	a := &arriving{ended: make(chan struct{})}
	go func() {
		defer close(a.ended)
		res, err := http.ReadResponse(c.r, nil)
		if err != nil {
			c.t.Error(err)
			return
		}
		for piece := make([]byte, 1024); ; {
			n, err := res.Body.Read(piece)
			a.mu.Lock()
			a.body = append(a.body, piece[:n]...)
			a.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return a
}

// A client that leaves while its stream is held back ends the attempt.
func TestAClientLeavesAHeldStream(t *testing.T) {
	ended := make(chan error, 1)
	u := startUpstream(t, func(c *upConn) {
		discardBody(c, c.head())
		c.say(streamHeaders + chunk(prelude))
		_, err := c.endOfInput()
		ended <- err
	})
	p := startProxy(t, u, func(c *Config) { holdsStreams(t, c) })
	c := p.dial().send(postABC)
	soon(t, "the request to be sent", func() bool { return u.sends() == 1 })
	c.Close()
	within(t, "the upstream to see it", ended)
	p.wantOutcome(0, policy.OutcomeClientGone)
}

// Without memory for it, a stream is relayed instead of held back.
func TestAStreamThatDoesNotFitIsRelayed(t *testing.T) {
	u := startUpstream(t, script(eventStream(overloaded)))
	p := startProxy(t, u, func(c *Config) {
		holdsStreams(t, c)
		c.RetryBufferTotalBytes = 100
	})
	p.dial().send(get("/")).want(200, overloaded)
}

// Wherever in the read buffer the error of a stream ends, it is retried.
func TestAnErrorAfterALongPrelude(t *testing.T) {
	for _, n := range []int{1000, 3600, 4000, 4100, 15_900, 16_300, 16_500, 60_000, 65_300, 65_600, 130_900, 131_200, 200_000, eventstream.MaxHeld - 500} {
		u := startUpstream(t, script(eventStream(": "+strings.Repeat("x", n)+"\n\n"+overloaded), ok200))
		p := startProxy(t, u, func(c *Config) { holdsStreams(t, c) })
		p.dial().send(postABC).want(200, "ok")
	}
}
