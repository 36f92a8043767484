package bodies

import (
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

const continue100 = "HTTP/1.1 100 Continue\r\n\r\n"

func expecting(version string, length int, more ...string) string {
	fields := append([]string{"Host: a", "Expect: 100-continue", fmt.Sprintf("Content-Length: %d", length)}, more...)
	return peers.RequestText("PUT / HTTP/"+version, fields...)
}

func TestExpectIsAskedOfTheUpstream(t *testing.T) {
	asked := make(chan string)
	bodyCame := make(chan string)
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			asked <- headers
			c.Say(continue100)
			bodyCame <- c.Body(5)
			c.Say(continue100) // a second one is nobody's business
			c.Say(peers.OK200)
		}
	})
	p := proxytest.Start(t, u, peers.AddNothingToResponses)
	c := p.Dial()
	for range 2 {
		c.Send(expecting("1.1", 5))
		if headers := peers.Within(t, "the head upstream", asked); !strings.Contains(headers, "\r\nExpect: 100-continue\r\n") {
			t.Fatalf("upstream got %q, want the expectation", headers)
		}
		c.WantRaw(continue100)
		c.Send("hello")
		if got := peers.Within(t, "the body upstream", bodyCame); got != "hello" {
			t.Errorf("body %q", got)
		}
		c.WantRaw(peers.OK200)
	}
	if u.Connections() != 1 {
		t.Errorf("%d upstream connections, want 1", u.Connections())
	}
}

func TestAClientThatExpectsMaySendItsBodyAnyway(t *testing.T) {
	for _, late := range []bool{false, true} {
		u := peers.StartUpstream(t, func(c *peers.Conn) {
			c.Head()
			if c.Body(5) == "hello" {
				c.Say(peers.OK200)
			}
		})
		p := proxytest.Start(t, u, peers.AddNothingToResponses)
		c := p.Dial()
		if late {
			c.Send(expecting("1.1", 5))
			time.Sleep(2 * attempt.InlineWait)
			c.Send("hello")
		} else {
			c.Send(expecting("1.1", 5) + "hello")
		}
		c.WantRaw(peers.OK200) // and no 100 before it
	}
}

func TestAFinalResponseInsteadOfContinueIsRelayedWithoutTheBody(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		c.Say("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")
		_, _ = c.EndOfInput()
	})
	p := proxytest.Start(t, u, peers.AddNothingToResponses)
	c := p.Dial().Send(expecting("1.1", 5))
	c.WantEnd("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
	p.WantOutcome(0, policy.OutcomeSuccess)
}

func TestExpectOfHTTP10IsIgnored(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		c.Say(continue100) // never wanted
		c.Body(5)
		c.Say(peers.OK200)
	})
	p := proxytest.Start(t, u, peers.AddNothingToResponses)
	c := p.Dial().Send(expecting("1.0", 5, "Connection: keep-alive") + "hello")
	c.WantRaw("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok")
	if strings.Contains(u.Head(0), "Expect") {
		t.Errorf("upstream got %q", u.Head(0))
	}
}

func TestExpectWithoutABodyIsNotForwarded(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, peers.AddNothingToResponses)
	p.Dial().Send(peers.RequestText("PUT / HTTP/1.1", "Host: a", "Expect: 100-continue", "Content-Length: 0")).WantRaw(peers.OK200)
	if strings.Contains(u.Head(0), "Expect") {
		t.Errorf("upstream got %q", u.Head(0))
	}
}

func TestRetriesDropExpectAndSendTheClientA100(t *testing.T) {
	t.Run("refused before the body", func(t *testing.T) {
		var second string
		u := peers.StartUpstream(t, func(c *peers.Conn) {
			if headers := c.Head(); c.N == 1 {
				c.Say(peers.Bad503)
				_, _ = c.EndOfInput()
			} else if headers != "" {
				second = c.Body(5)
				c.Say(peers.OK200)
			}
		})
		p := proxytest.Start(t, u, peers.AddNothingToResponses)
		c := p.Dial().Send(expecting("1.1", 5))
		c.WantRaw(continue100) // ours: the retry needs the body
		c.Send("hello").WantRaw(peers.OK200)
		if second != "hello" || strings.Contains(u.Head(1), "Expect") || !strings.Contains(u.Head(0), "Expect") {
			t.Errorf("attempts %q and %q with body %q", u.Head(0), u.Head(1), second)
		}
	})
	t.Run("not connected", func(t *testing.T) {
		u := peers.StartUpstream(t, func(c *peers.Conn) {
			peers.DiscardBody(c, c.Head())
			c.Say(peers.OK200)
		})
		p := proxytest.Start(t, u, func(c *proxy.Config) {
			peers.AddNothingToResponses(c)
			dials := 0
			c.Default.Upstream.Dial = func(_ context.Context, network, addr string) (net.Conn, error) {
				if dials++; dials == 1 {
					return nil, syscall.ECONNREFUSED
				}
				return net.Dial(network, addr)
			}
		})
		c := p.Dial().Send(expecting("1.1", 5))
		c.WantRaw(continue100)
		c.Send("hello").WantRaw(peers.OK200)
		if strings.Contains(u.Head(0), "Expect") {
			t.Errorf("the retry said %q", u.Head(0))
		}
	})
	t.Run("continued already", func(t *testing.T) {
		u := peers.StartUpstream(t, func(c *peers.Conn) {
			for headers := c.Head(); headers != ""; headers = c.Head() {
				if c.Up.Sends() == 1 {
					c.Say(continue100)
				}
				c.Body(5)
				if c.Up.Sends() == 1 {
					c.Say(peers.Bad503)
				} else {
					c.Say(continue100 + peers.OK200)
				}
			}
		})
		p := proxytest.Start(t, u, peers.AddNothingToResponses)
		c := p.Dial().Send(expecting("1.1", 5))
		c.WantRaw(continue100)
		c.Send("hello").WantRaw(peers.OK200) // no second 100
		if strings.Contains(u.Head(1), "Expect") {
			t.Errorf("the retry said %q", u.Head(1))
		}
	})
}

const (
	hints103      = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nlink: </b.css>; rel=preload\r\n\r\n"
	processing102 = "HTTP/1.1 102 Processing\r\n\r\n"
)

func TestInterimResponsesAreForwardedAtOnce(t *testing.T) {
	goOn := make(chan struct{})
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		for _, s := range []string{hints103, processing102, hints103} {
			c.Say("%s", s)
			<-goOn
		}
		c.Say(peers.OK200)
	})
	p := proxytest.Start(t, u, peers.AddNothingToResponses)
	c := p.Dial().Send(peers.Get("/"))
	for _, s := range []string{hints103, processing102, hints103} {
		c.WantRaw(s)
		goOn <- struct{}{}
	}
	c.WantRaw(peers.OK200)
}

func TestInterimResponsesLoseHopByHopHeaders(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script("HTTP/1.1 103 Early Hints\r\nConnection: X-Hop, close\r\nX-Hop: 1\r\nKeep-Alive: timeout=3\r\nLink: <a>\r\nProxy-Connection: x\r\n\r\n"+peers.OK200))
	p := proxytest.Start(t, u, peers.AddNothingToResponses)
	c := p.Dial()
	for range 2 { // "close" in an interim response ends nothing
		c.Send(peers.Get("/")).WantRaw("HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" + peers.OK200)
	}
}

func TestInterimResponsesOfEveryAttemptAreForwarded(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(hints103+peers.Bad503, processing102+peers.OK200))
	p := proxytest.Start(t, u, peers.AddNothingToResponses)
	p.Dial().Send(peers.Get("/")).WantRaw(hints103 + processing102 + peers.OK200)
}

func TestInterimResponsesAreNotForHTTP10(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(hints103+peers.OK200))
	p := proxytest.Start(t, u, peers.AddNothingToResponses)
	p.Dial().Send(peers.RequestText("GET / HTTP/1.0")).WantEnd("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
}

func TestAnUnaskedContinueIsNotForwarded(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(continue100+peers.OK200))
	p := proxytest.Start(t, u, peers.AddNothingToResponses)
	p.Dial().Send(peers.Get("/")).WantRaw(peers.OK200)
}

func TestEndlessInterimResponsesAreAMalformedResponse(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(strings.Repeat(processing102, attempt.MaxInformational+1)+peers.OK200))
	p := proxytest.Start(t, u, func(c *proxy.Config) { c.Default.Policy.MaxRetries = 0 })
	c := p.Dial().Send(peers.Post(""))
	for range attempt.MaxInformational {
		c.WantRaw(processing102)
	}
	c.Want(502, "*")
	if classes := p.Seen.Classes; len(classes) != 1 || classes[0] != policy.Unknown {
		t.Errorf("classes %v, want one unknown", classes)
	}
}
