package bodies

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

func TestResponsesArriveByteForByte(t *testing.T) {
	cases := []struct {
		name, answer string
		want         string // "": as answer
	}{
		{name: "length", answer: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nx-a: 1\r\nX-A: 2\r\n\r\nhello"},
		{name: "length 0", answer: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
		{name: "chunked", answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n"},
		{
			name:   "chunk sizes and extensions are written anew",
			answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0005;a=b\r\nhello\r\n000\r\n\r\n",
			want:   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		},
		{name: "trailers", answer: "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 9\r\nx-other: a\r\n\r\n"},
		{
			name:   "trailers about framing are dropped",
			answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nContent-Length: 9\r\nX-Sum: 9\r\n\r\n",
			want:   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 9\r\n\r\n",
		},
		{name: "204", answer: "HTTP/1.1 204 No Content\r\nX: y\r\n\r\n"},
		{name: "304 with length", answer: "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: \"x\"\r\n\r\n"},
		{name: "no phrase", answer: "HTTP/1.1 200 \r\nContent-Length: 1\r\n\r\nx"},
		{name: "odd code", answer: "HTTP/1.1 299 Odd Thing\r\nContent-Length: 1\r\n\r\nx"},
		{
			name:   "1.0 upstream that keeps alive",
			answer: "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
			want:   "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			want := tc.want
			if want == "" {
				want = tc.answer
			}
			u := peers.StartUpstream(t, func(c *peers.Conn) {
				for c.Head() != "" {
					c.Say("%s", tc.answer)
				}
			})
			p := proxytest.Start(t, u, peers.AddNothingToResponses)
			c := p.Dial()
			for range 2 { // twice, so that a byte too many or too few shows
				c.Send(peers.Get("/")).WantRaw(want)
			}
			if u.Connections() != 1 {
				t.Errorf("%d upstream connections, want 1 kept alive", u.Connections())
			}
		})
	}
}

func TestRequestBodiesArriveByteForByte(t *testing.T) {
	cases := []struct{ name, request, want string }{
		{"length", peers.RequestText("PUT / HTTP/1.1", "Host: a", "Content-Length: 5") + "hello", "hello"},
		{"chunked", peers.RequestText("PUT / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + "5\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"},
		{"chunked, odd sizes", peers.RequestText("PUT / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + "005;x=y\r\nhello\r\n00\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"},
		{
			"trailers", peers.RequestText("PUT / HTTP/1.1", "Host: a", "Trailer: X-Sum", "Transfer-Encoding: chunked") + "5\r\nhello\r\n0\r\nX-Sum: 9\r\n\r\n",
			"5\r\nhello\r\n0\r\nX-Sum: 9\r\n\r\n",
		},
		{
			"trailers about routing are dropped", peers.RequestText("PUT / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + "5\r\nhello\r\n0\r\nHost: b\r\nX-Sum: 9\r\n\r\n",
			"5\r\nhello\r\n0\r\nX-Sum: 9\r\n\r\n",
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			bodies := make(chan string, 2)
			u := peers.StartUpstream(t, func(c *peers.Conn) {
				for c.Head() != "" {
					bodies <- rawBody(c, len(tc.want))
					c.Say(peers.OK200)
				}
			})
			p := proxytest.Start(t, u, nil)
			c := p.Dial()
			for range 2 {
				c.Send(tc.request).Want(200, "ok")
				if got := <-bodies; got != tc.want {
					t.Errorf("body upstream %q, want %q", got, tc.want)
				}
			}
			headers := peers.WithoutAdded(u.Head(0))
			if want := tc.request[:strings.Index(tc.request, "\r\n\r\n")+4]; headers != want {
				t.Errorf("head upstream %q, want %q", headers, want)
			}
		})
	}
}

func TestEveryFramingInTurnOnTheSameConnections(t *testing.T) {
	responses := []string{
		peers.OK200,
		"HTTP/1.1 204 No Content\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n",
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
	}
	u := peers.StartUpstream(t, peers.Script(append(responses, responses...)...))
	p := proxytest.Start(t, u, peers.AddNothingToResponses)
	c := p.Dial()
	for range 2 {
		for _, a := range responses {
			c.Send(peers.Get("/")).WantRaw(a)
		}
	}
	if u.Connections() != 1 {
		t.Errorf("%d upstream connections, want 1", u.Connections())
	}
}

func TestHEADHasNoBodyWhateverTheHeadersSay(t *testing.T) {
	for _, fields := range []string{"Content-Length: 1000\r\n", "Transfer-Encoding: chunked\r\n", ""} {
		u := peers.StartUpstream(t, peers.Script("HTTP/1.1 200 OK\r\n"+fields+"\r\n", peers.OK200))
		p := proxytest.Start(t, u, peers.AddNothingToResponses)
		c := p.Dial().Send(peers.RequestText("HEAD / HTTP/1.1", "Host: a"))
		want := "HTTP/1.1 200 OK\r\n"
		if strings.HasPrefix(fields, "Content-Length") {
			want += fields
		}
		c.WantRaw(want + "\r\n")
		c.Send(peers.Get("/")).WantRaw(peers.OK200)
		if u.Connections() != 1 {
			t.Errorf("%q: %d upstream connections, want 1", fields, u.Connections())
		}
	}
}

func TestPipelinedRequestsAreServedInOrder(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			body := peers.DiscardBody(c, headers)
			path := strings.Fields(headers)[1]
			c.Say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s%s", len(path)+len(body), path, body)
		}
	})
	p := proxytest.Start(t, u, nil)
	c := p.Dial()
	var all strings.Builder
	for i := range 20 {
		switch i % 3 {
		case 0:
			all.WriteString(peers.Get(fmt.Sprintf("/%d", i)))
		case 1:
			all.WriteString(peers.RequestText(fmt.Sprintf("POST /%d HTTP/1.1", i), "Host: a", "Content-Length: 4") + "GET ")
		case 2:
			all.WriteString(peers.RequestText(fmt.Sprintf("POST /%d HTTP/1.1", i), "Host: a", "Transfer-Encoding: chunked") + "4\r\nGET \r\n0\r\n\r\n")
		}
	}
	c.Send(all.String())
	for i := range 20 {
		want := fmt.Sprintf("/%d", i)
		if i%3 != 0 {
			want += "GET "
		}
		c.Want(200, want)
	}
	if u.Sends() != 20 {
		t.Errorf("%d sends, want 20", u.Sends())
	}
}

// Requests that arrive while the upstream is awaited, or while a retry waits, are kept and get
// their responses in order.
func TestPipelinedRequestsThatComeDuringWaitsAreKept(t *testing.T) {
	goOn := make(chan struct{})
	n := 0
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			switch n++; n {
			case 1:
				<-goOn
				c.Say(peers.Bad503)
			default:
				path := strings.Fields(headers)[1]
				c.Say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(path), path)
			}
		}
	})
	p := proxytest.Start(t, u, func(c *proxy.Config) { c.Default.Policy.Backoff = peers.FixedWait(t, 100*time.Millisecond) })
	c := p.Dial().Send(peers.Get("/1"))
	time.Sleep(2 * downstream.PollEvery) // now the second goroutine reads
	c.Send(peers.Get("/2"))
	long := "/" + strings.Repeat("3", 10000) // more than the read buffer has room for
	c.Send(peers.Get(long))
	close(goOn)
	peers.Soon(t, "the wait for a retry", func() bool { return p.Seen.WaitsBegun() > 0 })
	c.Send(peers.Get("/4"))
	for _, path := range []string{"/1", "/2", long, "/4"} {
		c.Want(200, path)
	}
}

func TestWhatFollowsAClosingRequestIsNotServed(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, peers.AddNothingToResponses)
	c := p.Dial().Send(peers.RequestText("GET / HTTP/1.1", "Host: a", "Connection: close") + peers.Get("/smuggled"))
	c.WantEnd("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
	if u.Sends() != 1 {
		t.Errorf("%d sends, want 1", u.Sends())
	}
}

// Some clients send an empty line after a body. It begins no request.
func TestAnEmptyLineBetweenRequestsIsIgnored(t *testing.T) {
	proxytest.InMemory(t, peers.Script(peers.OK200), nil, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client()
		for _, blank := range []string{"\r\n", ""} {
			c.Send(peers.Post("hello")+blank).Want(200, "ok")
			time.Sleep(10 * time.Second) // longer than a head may take
			c.Send("\r\n" + peers.Get("/"))
			c.Want(200, "ok")
			c.Send("\r\n")
			time.Sleep(10 * time.Second)
		}
		c.Send("\r").Send("\n"+peers.Get("/")).Want(200, "ok")
		synctest.Wait()
		if n := len(m.Seen.Outcomes); n != 5 {
			t.Errorf("%d requests counted, want 5", n)
		}
	})
}

// Empty lines begin no request, so they do not make the idle time longer.
func TestEmptyLinesDoNotKeepAClient(t *testing.T) {
	const slack = 5 * time.Second // by which an idle client may be closed earlier or later
	for name, tc := range map[string]struct {
		first string
		idle  time.Duration
	}{"before its first request": {"", time.Minute}, "after a request": {peers.Get("/"), 3 * time.Minute}} {
		t.Run(name, func(t *testing.T) {
			proxytest.InMemory(t, peers.Script(peers.OK200), func(c *proxy.Config) { c.ClientIdleTimeout = 3 * time.Minute }, func(t *testing.T, m *proxytest.Memory) {
				c, began := m.Client(), time.Now()
				if tc.first != "" {
					c.Send(tc.first).Want(200, "ok")
				}
				ended := make(chan struct{})
				go func() { _, _ = c.Rest(); close(ended) }()
				for time.Since(began) < 10*time.Minute {
					select {
					case <-ended:
						if d := time.Since(began); d < tc.idle-slack || d > tc.idle+slack {
							t.Errorf("it ended after %v, want %v", d, tc.idle)
						}
						return
					case <-time.After(10 * time.Second):
						_, _ = io.WriteString(c.Conn, "\r\n")
					}
				}
				t.Error("it is still connected")
				c.Close()
				<-ended
			})
		})
	}
}

func TestHTTP10Clients(t *testing.T) {
	chunked := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n"
	cases := []struct {
		name, request, answer, want string
		stays                       bool
	}{
		{
			name: "closes by default", request: peers.RequestText("GET / HTTP/1.0", "Host: a"), answer: peers.OK200,
			want: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
		},
		{
			name: "needs no Host", request: peers.RequestText("GET / HTTP/1.0"), answer: peers.OK200,
			want: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
		},
		{
			name: "may ask to be kept", request: peers.RequestText("GET / HTTP/1.0", "Host: a", "Connection: keep-alive"), answer: peers.OK200,
			want: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok", stays: true,
		},
		{
			name: "gets no chunks", request: peers.RequestText("GET / HTTP/1.0", "Host: a", "Connection: keep-alive"), answer: chunked,
			want: "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello",
		},
		{
			name: "gets what ends by close as it is", request: peers.RequestText("GET / HTTP/1.0", "Host: a"), answer: "HTTP/1.0 200 OK\r\n\r\nhello",
			want: "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello",
		},
		{
			name: "may send a body", request: peers.RequestText("POST / HTTP/1.0", "Host: a", "Content-Length: 2") + "hi", answer: peers.OK200,
			want: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
		},
		{
			name: "gets a 204 and may go on", request: peers.RequestText("GET / HTTP/1.0", "Host: a", "Connection: keep-alive"), answer: "HTTP/1.1 204 No Content\r\n\r\n",
			want: "HTTP/1.1 204 No Content\r\nConnection: keep-alive\r\n\r\n", stays: true,
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			u := peers.StartUpstream(t, peers.Script(tc.answer))
			p := proxytest.Start(t, u, func(c *proxy.Config) {
				peers.AddNothingToResponses(c)
				c.Default.Forward.UpstreamHost = "app.test"
			})
			c := p.Dial().Send(tc.request)
			if tc.stays {
				c.WantRaw(tc.want)
				c.Send(tc.request).WantRaw(tc.want)
			} else {
				c.WantEnd(tc.want)
			}
			line, _, _ := strings.Cut(u.Head(0), "\r\n")
			if !strings.HasSuffix(line, " HTTP/1.1") || peers.FieldOf(u.Head(0), "Host") == "" {
				t.Errorf("upstream got %q, want HTTP/1.1 with a Host", u.Head(0))
			}
			p.WantOutcome(0, policy.OutcomeSuccess)
		})
	}
}

func TestUpstreamsOfHTTP10(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script("HTTP/1.0 200 OK\r\nContent-Type: a/b\r\n\r\nhello"))
	p := proxytest.Start(t, u, peers.AddNothingToResponses)
	c := p.Dial()
	for range 2 { // the client's connection goes on, the upstream's does not
		c.Send(peers.Get("/")).WantRaw("HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
	}
	if u.Connections() != 2 {
		t.Errorf("%d upstream connections, want 2: each ended its response", u.Connections())
	}
}

func TestAResponseWithoutAnyFramingEndsWithTheConnection(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		c.Say("HTTP/1.1 200 OK\r\n\r\n")
		for range 3 {
			c.Say("part")
			time.Sleep(5 * time.Millisecond)
		}
	})
	p := proxytest.Start(t, u, nil)
	c := p.Dial()
	for range 2 {
		res := c.Send(peers.Get("/")).Want(200, "partpartpart")
		if res.ContentLength != -1 || res.TransferEncoding[0] != "chunked" || res.Close {
			t.Errorf("length %d, coding %v, close %v; want chunked and kept alive", res.ContentLength, res.TransferEncoding, res.Close)
		}
	}
	p.WantOutcome(1, policy.OutcomeSuccess)
}

// Headers may arrive a byte at a time, in both directions.
func TestHeadersMayComeByteByByte(t *testing.T) {
	response := "HTTP/1.1 200 OK\r\nX: y\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-T: 1\r\n\r\n"
	proxytest.InMemory(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			peers.DiscardBody(c, headers)
			for i := range len(response) {
				time.Sleep(time.Millisecond)
				c.Say("%s", response[i:i+1])
			}
		}
	}, peers.AddNothingToResponses, func(t *testing.T, m *proxytest.Memory) {
		c := m.Client()
		for range 2 {
			for _, b := range peers.RequestText("PUT / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + "2\r\nhi\r\n0\r\n\r\n" {
				c.Send(string(b))
				time.Sleep(time.Millisecond)
			}
			res := c.Want(200, "ok")
			if res.Trailer.Get("X-T") != "1" || res.Header.Get("X") != "y" {
				t.Errorf("%v, trailers %v", res.Header, res.Trailer)
			}
		}
	})
}

// Headers close to the limit pass completely, also if the response is buffered.
func TestLargeHeadersPass(t *testing.T) {
	var fields []string
	for i := range 60 {
		fields = append(fields, fmt.Sprintf("X-%d: %s", i, strings.Repeat(string(rune('a'+i%26)), 1000)))
	}
	for _, responses := range [][]string{
		{peers.RequestText("HTTP/1.1 200 OK", append(fields, "Content-Length: 2")...) + "ok"},
		{peers.RequestText("HTTP/1.1 503 No", append(fields, "Content-Length: 2")...) + "no", ""},
	} {
		u := peers.StartUpstream(t, peers.Script(responses...))
		p := proxytest.Start(t, u, peers.AddNothingToResponses)
		c := p.Dial()
		c.Send(peers.RequestText("GET / HTTP/1.1", append([]string{"Host: a"}, fields...)...)).WantRaw(responses[0])
		if got, want := peers.WithoutAdded(u.Head(0)), peers.RequestText("GET / HTTP/1.1", append([]string{"Host: a"}, fields...)...); got != want {
			t.Errorf("%d bytes of head arrived, want %d", len(got), len(want))
		}
	}
}

// Our own responses to HEAD, and buffered ones, have no body either.
func TestHEADGetsNoBodyOfAFailure(t *testing.T) {
	busy := peers.StartUpstream(t, peers.Script(strings.TrimSuffix(peers.Bad503, "busy")))
	for _, u := range []*peers.Upstream{busy, peers.StartUpstream(t, peers.Script("nonsense\r\n\r\n"))} {
		p := proxytest.Start(t, u, nil)
		c := p.Dial()
		for range 2 {
			res, body, err := c.Send(peers.RequestText("HEAD / HTTP/1.1", "Host: a")).Response("HEAD")
			if err != nil || body != "" || res.StatusCode < 500 || res.ContentLength <= 0 || res.Close {
				t.Fatalf("%v %q %v", res, body, err)
			}
		}
	}
	if busy.Connections() != 1 {
		t.Errorf("%d connections to the upstream that answers 503, want 1 kept over all retries", busy.Connections())
	}
}
