package llm

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/eventstream"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// longPrelude is the beginning of a stream of the Responses API, which repeats the request's instructions.
var longPrelude = strings.Repeat("event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"error\":null,\"instructions\":\""+strings.Repeat("x", 120<<10)+"\"}}\n\n", 2)

// eventStream is a whole response with the events given.
func eventStream(events string) string {
	return peers.StreamHeaders + chunk(events) + "0\r\n\r\n"
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

// An event stream is retried like any other response until its first content, and never after it.
func TestStreamsAreRetriedUntilTheirFirstContent(t *testing.T) {
	good := peers.Prelude + peers.FirstText + "data: [DONE]\n\n"
	for name, tc := range map[string]struct {
		request string
		first   string // what the first attempt gets
		want    string // body; "" for that of the good second stream
		outcome policy.Outcome
	}{
		"overloaded at once":          {peers.PostABC, eventStream(peers.Overloaded), "", policy.OutcomeRecovered},
		"overloaded after a prelude":  {peers.PostABC, eventStream(peers.Prelude + peers.Overloaded), "", policy.OutcomeRecovered},
		"overloaded in small pieces":  {peers.PostABC, peers.StreamHeaders + chunk(peers.Overloaded[:9]) + chunk(peers.Overloaded[9:40]) + chunk(peers.Overloaded[40:]) + "0\r\n\r\n", "", policy.OutcomeRecovered},
		"rate limited":                {peers.PostABC, eventStream(strings.Replace(peers.TryAgain, "7s", "2ms", 1)), "", policy.OutcomeRecovered},
		"an error of unknown effect":  {peers.Get("/"), eventStream(peers.ServerError), "", policy.OutcomeRecovered},
		"the same, of a POST":         {peers.PostABC, eventStream(peers.ServerError), peers.ServerError, policy.OutcomeGaveUpNotIdempotent},
		"the account is used up":      {peers.PostABC, eventStream(peers.Prelude + peers.NoQuota), peers.Prelude + peers.NoQuota, policy.OutcomeGaveUpQuotaExhausted},
		"an error after the content":  {peers.PostABC, eventStream(peers.FirstText + peers.Overloaded), peers.FirstText + peers.Overloaded, policy.OutcomeSuccess},
		"a refused prompt":            {peers.PostABC, eventStream(strings.Replace(peers.ServerError, "server_error", "invalid_request_error", 1)), strings.Replace(peers.ServerError, "server_error", "invalid_request_error", 1), policy.OutcomeSuccess},
		"an error in its last line":   {peers.PostABC, eventStream(peers.Prelude + strings.TrimSpace(peers.Overloaded)), "", policy.OutcomeRecovered},
		"lines that end with CR":      {peers.PostABC, eventStream(strings.ReplaceAll(peers.Prelude+peers.Overloaded, "\n", "\r")), "", policy.OutcomeRecovered},
		"a long prelude":              {peers.PostABC, eventStream(longPrelude + peers.Overloaded), "", policy.OutcomeRecovered},
		"a long prelude, with length": {peers.PostABC, peers.ResponseWithBody(200, longPrelude+peers.Overloaded, "Content-Type: "+peers.EventStreamType), "", policy.OutcomeRecovered},
		"a long prelude, used up":     {peers.PostABC, eventStream(longPrelude + peers.NoQuota), longPrelude + peers.NoQuota, policy.OutcomeGaveUpQuotaExhausted},
		"an end without content":      {peers.PostABC, eventStream(peers.Prelude), peers.Prelude, policy.OutcomeSuccess},
		"a cut before the content":    {peers.Get("/"), peers.StreamHeaders + chunk(peers.Prelude) + "\x00", "", policy.OutcomeRecovered},
		"more prelude than is held":   {peers.PostABC, eventStream(strings.Repeat(peers.Prelude, 3000) + peers.Overloaded), strings.Repeat(peers.Prelude, 3000) + peers.Overloaded, policy.OutcomeSuccess},
		"compressed":                  {peers.PostABC, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n" + eventStream(peers.Overloaded)[len("HTTP/1.1 200 OK\r\n"):], peers.Overloaded, policy.OutcomeSuccess},
		"not an event stream":         {peers.PostABC, "HTTP/1.1 200 OK\r\nContent-Type: text/event-streams\r\n" + eventStream(peers.Overloaded)[len(peers.StreamHeaders)-len("Transfer-Encoding: chunked\r\n\r\n"):], peers.Overloaded, policy.OutcomeSuccess},
		"a status that is a failure":  {peers.PostABC, peers.ResponseWithBody(503, peers.Overloaded, "Content-Type: "+peers.EventStreamType), "", policy.OutcomeRecovered},
		"a length in place of chunks": {peers.PostABC, peers.ResponseWithBody(200, peers.Overloaded, "Content-Type: "+peers.EventStreamType), "", policy.OutcomeRecovered},
		"until the connection's end":  {peers.PostABC, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + peers.Overloaded, "", policy.OutcomeRecovered},
	} {
		t.Run(name, func(t *testing.T) {
			u := peers.StartUpstream(t, firstThen(tc.first, eventStream(good)))
			p := proxytest.Start(t, u, func(c *proxy.Config) { peers.HoldsStreams(t, c) })
			want, sends := tc.want, 1
			if want == "" {
				want, sends = good, 2
			}
			p.Dial().Send(tc.request).Want(200, want)
			p.WantOutcome(0, tc.outcome)
			if u.Sends() != sends {
				t.Errorf("%d sent, want %d", u.Sends(), sends)
			}
		})
	}
}

// firstThen responds with first and then with second. A first that ends with a NUL is cut off there.
func firstThen(first, second string) func(*peers.Conn) {
	cut, ends := strings.CutSuffix(first, "\x00")
	if !ends {
		return peers.Script(first, second)
	}
	rest := peers.Script(second)
	return func(c *peers.Conn) {
		if c.N > 1 {
			rest(c)
			return
		}
		peers.DiscardBody(c, c.Head())
		c.Say("%s", cut)
	}
}

// A stream that was cut before its content reached no client. A request that may have done work is
// not repeated.
func TestACutBeforeTheContentOfAPostIsAnError(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		peers.DiscardBody(c, c.Head())
		c.Say(peers.StreamHeaders + chunk(peers.Prelude))
	})
	p := proxytest.Start(t, u, func(c *proxy.Config) { peers.HoldsStreams(t, c) })
	res, body, err := p.Dial().Send(peers.PostABC).Response("POST")
	if err != nil || res.StatusCode != 502 || res.Header.Get("X-Retryproxy-Reason") != "not_idempotent" || u.Sends() != 1 {
		t.Errorf("%v %q %v, %d sent", res, body, err, u.Sends())
	}
}

// A cut after the content reaches the client as a cut, and is no success.
func TestAStreamThatIsCutIsNoSuccess(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Minute} {
		u := peers.StartUpstream(t, func(c *peers.Conn) {
			peers.DiscardBody(c, c.Head())
			c.Say(peers.StreamHeaders + chunk(peers.FirstText) + chunk("data: more\n\n"))
		})
		p := proxytest.Start(t, u, func(c *proxy.Config) { peers.HoldsStreams(t, c); c.Default.FirstContentTimeout = timeout })
		_, body, err := p.Dial().Send(peers.Get("/")).Response("GET")
		if err == nil || body != peers.FirstText+"data: more\n\n" {
			t.Errorf("%q, %v", body, err)
		}
		p.WantOutcome(0, policy.OutcomeStreamCut)
	}
}

// Without the setting, every byte is relayed at once.
func TestStreamsAreNotHeldByDefault(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(eventStream(peers.Overloaded)))
	p := proxytest.Start(t, u, nil)
	p.Dial().Send(peers.Get("/")).Want(200, peers.Overloaded)
	p.WantOutcome(0, policy.OutcomeSuccess)
}

// In a dry run nothing is held back or retried.
func TestADryRunHoldsNoStream(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(eventStream(peers.Overloaded)))
	p := proxytest.Start(t, u, func(c *proxy.Config) { peers.HoldsStreams(t, c); c.Default.DryRun = true })
	p.Dial().Send(peers.Get("/")).Want(200, peers.Overloaded)
	p.WantOutcome(0, policy.OutcomeSuccess)
}

// The wait that the error of a stream asks for is obeyed.
func TestAWaitInAStreamIsObeyed(t *testing.T) {
	up := &peers.Timed{First: []string{eventStream(peers.TryAgain)}}
	proxytest.InMemory(t, up.Handle, func(c *proxy.Config) { peers.HoldsStreams(t, c) }, func(t *testing.T, m *proxytest.Memory) {
		m.Client().Send(peers.PostABC).Want(200, "ok")
		if d := up.At[1].Sub(up.At[0]); d < 7*time.Second || d > 7*time.Second+2*time.Millisecond {
			t.Errorf("retried after %v, want 7s", d)
		}
	})
}

// A silent stream is relayed after the time for its content, whether it may be retried or not: it may be
// attached to a running job.
func TestASilentStreamIsRelayed(t *testing.T) {
	const keyed = "POST / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 3\r\n\r\nabc"
	for name, request := range map[string]string{"GET": peers.Get("/"), "POST": peers.PostABC, "POST with a key": keyed} {
		t.Run(name, func(t *testing.T) {
			handle := func(c *peers.Conn) {
				peers.DiscardBody(c, c.Head())
				c.Say("%s", peers.StreamHeaders+chunk(peers.Prelude))
				time.Sleep(90 * time.Second)
				c.Say("%s", chunk(peers.FirstText)+"0\r\n\r\n")
			}
			proxytest.InMemory(t, handle, func(c *proxy.Config) {
				peers.HoldsStreams(t, c)
				c.Default.RequestTimeout, c.Default.BodyIdleTimeout = 0, 2*time.Minute
			}, func(t *testing.T, m *proxytest.Memory) {
				b := readBody(m.Client().Send(request))
				time.Sleep(59 * time.Second)
				synctest.Wait()
				if body := b.text(); body != "" {
					t.Errorf("after 59 s the client has %q", body)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if body := b.text(); body != peers.Prelude {
					t.Errorf("after 61 s the client has %q, want %q", body, peers.Prelude)
				}
				<-b.ended
				if body := b.text(); body != peers.Prelude+peers.FirstText {
					t.Errorf("body %q", body)
				}
				m.WantOutcome(0, policy.OutcomeSuccess)
				if n := m.Up.Sends(); n != 1 {
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
			handle := func(c *peers.Conn) {
				peers.DiscardBody(c, c.Head())
				c.Say("%s", peers.StreamHeaders)
				for range 4 {
					c.Say("%s", chunk(": processing\n\n"))
					time.Sleep(900 * time.Millisecond)
				}
				c.Say("%s", chunk(peers.FirstText)+"0\r\n\r\n")
			}
			proxytest.InMemory(t, handle, func(c *proxy.Config) { peers.HoldsStreams(t, c) }, func(t *testing.T, m *proxytest.Memory) {
				b := readBody(m.Client().Send("POST / HTTP/1.1\r\nHost: a\r\n" + header + "\r\nContent-Length: 3\r\n\r\nabc"))
				time.Sleep(1001 * time.Millisecond)
				synctest.Wait()
				if body := b.text(); !strings.HasPrefix(body, ": processing") {
					t.Errorf("after half of its time the client has %q", body)
				}
				<-b.ended
				if body := b.text(); body != strings.Repeat(": processing\n\n", 4)+peers.FirstText {
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
		"comments":                        {[]string{comment, comment, comment, comment, peers.FirstText}, strings.Repeat(comment, 4), strings.Repeat(comment, 4) + peers.FirstText, 1},
		"a comment without an empty line": {[]string{peers.Prelude, "", "", ":\n", peers.FirstText}, peers.Prelude + ":\n", peers.Prelude + ":\n" + peers.FirstText, 1},
		"pings, then an error":            {[]string{peers.Prelude, ping, ping, ping, peers.Overloaded}, peers.Prelude + ping + ping + ping, peers.Prelude + ping + ping + ping + peers.Overloaded, 1},
		"an error after early pings":      {[]string{peers.Prelude, ping, ping, peers.Overloaded}, peers.FirstText, peers.FirstText, 2},
		"an error in two pieces":          {[]string{ping, ping, ping + peers.Overloaded[:20], peers.Overloaded[20:40], peers.Overloaded[40:]}, "", peers.FirstText, 2},
		"silence, then an error":          {[]string{peers.Prelude, "", "", "", peers.Overloaded}, "", peers.FirstText, 2},
		"a comment behind the error":      {[]string{peers.Prelude, "", "", peers.Overloaded + comment}, peers.FirstText, peers.FirstText, 2},
	} {
		t.Run(name, func(t *testing.T) {
			handle := func(c *peers.Conn) {
				peers.DiscardBody(c, c.Head())
				if c.N > 1 {
					c.Say("%s", eventStream(peers.FirstText))
					return
				}
				c.Say("%s", peers.StreamHeaders)
				for i, piece := range tc.pieces {
					if i > 0 {
						time.Sleep(4 * time.Second)
					}
					if piece != "" {
						c.Say("%s", chunk(piece))
					}
				}
				c.Say("0\r\n\r\n")
			}
			proxytest.InMemory(t, handle, func(c *proxy.Config) {
				peers.HoldsStreams(t, c)
				c.Default.RequestTimeout = 0
			}, func(t *testing.T, m *proxytest.Memory) {
				b := readBody(m.Client().Send(peers.PostABC))
				time.Sleep(13 * time.Second)
				synctest.Wait()
				if seen := b.text(); seen != tc.seen {
					t.Errorf("after 13 s the client has %q, want %q", seen, tc.seen)
				}
				<-b.ended
				if body := b.text(); body != tc.want {
					t.Errorf("body %q, want %q", body, tc.want)
				}
				if n := m.Up.Sends(); n != tc.sends {
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
func readBody(c *peers.Client) *arriving {
	a := &arriving{ended: make(chan struct{})}
	go func() {
		defer close(a.ended)
		res, err := http.ReadResponse(c.Reader, nil)
		if err != nil {
			c.T.Error(err)
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
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		peers.DiscardBody(c, c.Head())
		c.Say(peers.StreamHeaders + chunk(peers.Prelude))
		_, err := c.EndOfInput()
		ended <- err
	})
	p := proxytest.Start(t, u, func(c *proxy.Config) { peers.HoldsStreams(t, c) })
	c := p.Dial().Send(peers.PostABC)
	peers.Soon(t, "the request to be sent", func() bool { return u.Sends() == 1 })
	c.Close()
	peers.Within(t, "the upstream to see it", ended)
	p.WantOutcome(0, policy.OutcomeClientGone)
}

// Without memory for it, a stream is relayed instead of held back.
func TestAStreamThatDoesNotFitIsRelayed(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(eventStream(peers.Overloaded)))
	p := proxytest.Start(t, u, func(c *proxy.Config) {
		peers.HoldsStreams(t, c)
		c.RetryBufferTotalBytes = 100
	})
	p.Dial().Send(peers.Get("/")).Want(200, peers.Overloaded)
}

// Wherever in the read buffer the error of a stream ends, it is retried.
func TestAnErrorAfterALongPrelude(t *testing.T) {
	for _, n := range []int{1000, 3600, 4000, 4100, 15_900, 16_300, 16_500, 60_000, 65_300, 65_600, 130_900, 131_200, 200_000, eventstream.MaxHeld - 500} {
		u := peers.StartUpstream(t, peers.Script(eventStream(": "+strings.Repeat("x", n)+"\n\n"+peers.Overloaded), peers.OK200))
		p := proxytest.Start(t, u, func(c *proxy.Config) { peers.HoldsStreams(t, c) })
		p.Dial().Send(peers.PostABC).Want(200, "ok")
	}
}
