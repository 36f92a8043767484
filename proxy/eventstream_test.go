package proxy

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/eventstream"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/proxy/admission"
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
		"an end without content":      {postABC, eventStream(prelude), prelude, policy.OutcomeSuccess},
		"a cut before the content":    {get("/"), streamHeaders + chunk(prelude) + "\x00", "", policy.OutcomeRecovered},
		"more prelude than is held":   {postABC, eventStream(strings.Repeat(prelude, 500) + overloaded), strings.Repeat(prelude, 500) + overloaded, policy.OutcomeSuccess},
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

// A stream without content is given up for another attempt if one is allowed. Otherwise it
// continues, with everything that was held back.
func TestASilentStream(t *testing.T) {
	for name, tc := range map[string]struct {
		request string
		want    string
		outcome policy.Outcome
		sends   int
	}{
		"of a GET":  {get("/"), firstText, policy.OutcomeRecovered, 2},
		"of a POST": {postABC, prelude + firstText, policy.OutcomeSuccess, 1},
	} {
		t.Run(name, func(t *testing.T) {
			handle := func(c *upConn) {
				discardBody(c, c.head())
				if c.n > 1 {
					c.say("%s", eventStream(firstText))
					return
				}
				c.say("%s", streamHeaders+chunk(prelude))
				_ = c.SetReadDeadline(time.Now().Add(90 * time.Second))
				_, _ = c.endOfInput()
				c.say("%s", chunk(firstText)+"0\r\n\r\n")
			}
			inMemory(t, handle, func(c *Config) {
				holdsStreams(t, c)
				c.Default.RequestTimeout, c.Default.BodyIdleTimeout = 0, 2*time.Minute
			}, func(t *testing.T, m *memory) {
				began := time.Now()
				m.client().send(tc.request).want(200, tc.want)
				if took := time.Since(began); tc.sends == 2 && (took < time.Minute || took > 61*time.Second) {
					t.Errorf("took %v, want a minute", took)
				}
				m.wantOutcome(0, tc.outcome)
				if n := m.up.sends(); n != tc.sends {
					t.Errorf("%d sent, want %d", n, tc.sends)
				}
			})
		})
	}
}

// silentFirst responds to the first attempt with a stream that stays silent, and to further ones with
// content.
func silentFirst(c *upConn) {
	discardBody(c, c.head())
	if c.n > 1 {
		c.say("%s", eventStream(firstText))
		return
	}
	c.say("%s", streamHeaders+chunk(prelude))
	_, _ = c.endOfInput()
}

// A stream without content is given up for another attempt even if a drain began meanwhile, in the
// hold or in the wait after it. Its client has nothing else to get.
func TestASilentStreamIsRetriedInADrain(t *testing.T) {
	for name, begins := range map[string]time.Duration{"in the hold": 59 * time.Second, "in the wait": 61 * time.Second} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, silentFirst, func(c *Config) {
				holdsStreams(t, c)
				c.Default.RequestTimeout, c.DrainTimeout = 0, 20*time.Second
				c.Default.Policy.Backoff, _ = backoff.New("fixed", backoff.Options{Base: 5 * time.Second})
			}, func(t *testing.T, m *memory) {
				b := readBody(m.client().send(get("/")))
				time.Sleep(begins)
				began := time.Now()
				if err := m.Drain(context.Background()); err != nil || time.Since(began) > 5*time.Second {
					t.Errorf("the drain took %v: %v", time.Since(began), err)
				}
				<-b.ended
				if body := b.text(); body != firstText {
					t.Errorf("body %q, want %q", body, firstText)
				}
				m.wantOutcome(0, policy.OutcomeRecovered)
				if n := m.up.sends(); n != 2 {
					t.Errorf("%d sent, want 2", n)
				}
			})
		})
	}
}

// A silent stream goes on in a drain if its retry might have to wait, here for a rate limit, because the
// drain would end that wait and leave the client without any response.
func TestASilentStreamGoesOnInADrainIfItsRetryMightWait(t *testing.T) {
	inMemory(t, silentFirst, func(c *Config) {
		holdsStreams(t, c)
		c.Default.RequestTimeout, c.DrainTimeout = 0, 20*time.Second
		c.Default.RateLimit = admission.RateLimit{Rate: ratelimit.Rate{Attempts: 1, Per: time.Hour}}
	}, func(t *testing.T, m *memory) {
		b := readBody(m.client().send(get("/")))
		time.Sleep(59 * time.Second)
		_ = m.Drain(context.Background())
		<-b.ended
		if body := b.text(); body != prelude {
			t.Errorf("body %q, want %q", body, prelude)
		}
		if n := m.up.sends(); n != 1 {
			t.Errorf("%d sent, want 1", n)
		}
	})
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
	for n := 1000; n < eventstream.MaxHeld-500; n += 250 {
		u := startUpstream(t, script(eventStream(": "+strings.Repeat("x", n)+"\n\n"+overloaded), ok200))
		p := startProxy(t, u, func(c *Config) { holdsStreams(t, c) })
		p.dial().send(postABC).want(200, "ok")
	}
}
