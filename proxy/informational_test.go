package proxy

import (
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
)

const continue100 = "HTTP/1.1 100 Continue\r\n\r\n"

func expecting(version string, length int, more ...string) string {
	fields := append([]string{"Host: a", "Expect: 100-continue", fmt.Sprintf("Content-Length: %d", length)}, more...)
	return requestText("PUT / HTTP/"+version, fields...)
}

func TestExpectIsAskedOfTheUpstream(t *testing.T) {
	asked := make(chan string)
	bodyCame := make(chan string)
	u := startUpstream(t, func(c *upConn) {
		for headers := c.head(); headers != ""; headers = c.head() {
			asked <- headers
			c.say(continue100)
			bodyCame <- c.body(5)
			c.say(continue100) // a second one is nobody's business
			c.say(ok200)
		}
	})
	p := startProxy(t, u, bare)
	c := p.dial()
	for range 2 {
		c.send(expecting("1.1", 5))
		if headers := within(t, "the head upstream", asked); !strings.Contains(headers, "\r\nExpect: 100-continue\r\n") {
			t.Fatalf("upstream got %q, want the expectation", headers)
		}
		c.wantRaw(continue100)
		c.send("hello")
		if got := within(t, "the body upstream", bodyCame); got != "hello" {
			t.Errorf("body %q", got)
		}
		c.wantRaw(ok200)
	}
	if u.connections() != 1 {
		t.Errorf("%d upstream connections, want 1", u.connections())
	}
}

func TestAClientThatExpectsMaySendItsBodyAnyway(t *testing.T) {
	for _, late := range []bool{false, true} {
		u := startUpstream(t, func(c *upConn) {
			c.head()
			if c.body(5) == "hello" {
				c.say(ok200)
			}
		})
		p := startProxy(t, u, bare)
		c := p.dial()
		if late {
			c.send(expecting("1.1", 5))
			time.Sleep(2 * attempt.InlineWait)
			c.send("hello")
		} else {
			c.send(expecting("1.1", 5) + "hello")
		}
		c.wantRaw(ok200) // and no 100 before it
	}
}

func TestAFinalResponseInsteadOfContinueIsRelayedWithoutTheBody(t *testing.T) {
	u := startUpstream(t, func(c *upConn) {
		c.head()
		c.say("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")
		_, _ = c.endOfInput()
	})
	p := startProxy(t, u, bare)
	c := p.dial().send(expecting("1.1", 5))
	c.wantEnd("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
	p.wantOutcome(0, policy.OutcomeSuccess)
}

func TestExpectOfHTTP10IsIgnored(t *testing.T) {
	u := startUpstream(t, func(c *upConn) {
		c.head()
		c.say(continue100) // never wanted
		c.body(5)
		c.say(ok200)
	})
	p := startProxy(t, u, bare)
	c := p.dial().send(expecting("1.0", 5, "Connection: keep-alive") + "hello")
	c.wantRaw("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok")
	if strings.Contains(u.head(0), "Expect") {
		t.Errorf("upstream got %q", u.head(0))
	}
}

func TestExpectWithoutABodyIsNotForwarded(t *testing.T) {
	u := startUpstream(t, script(ok200))
	p := startProxy(t, u, bare)
	p.dial().send(requestText("PUT / HTTP/1.1", "Host: a", "Expect: 100-continue", "Content-Length: 0")).wantRaw(ok200)
	if strings.Contains(u.head(0), "Expect") {
		t.Errorf("upstream got %q", u.head(0))
	}
}

func TestRetriesDropExpectAndSendTheClientA100(t *testing.T) {
	t.Run("refused before the body", func(t *testing.T) {
		var second string
		u := startUpstream(t, func(c *upConn) {
			if headers := c.head(); c.n == 1 {
				c.say(bad503)
				_, _ = c.endOfInput()
			} else if headers != "" {
				second = c.body(5)
				c.say(ok200)
			}
		})
		p := startProxy(t, u, bare)
		c := p.dial().send(expecting("1.1", 5))
		c.wantRaw(continue100) // ours: the retry needs the body
		c.send("hello").wantRaw(ok200)
		if second != "hello" || strings.Contains(u.head(1), "Expect") || !strings.Contains(u.head(0), "Expect") {
			t.Errorf("attempts %q and %q with body %q", u.head(0), u.head(1), second)
		}
	})
	t.Run("not connected", func(t *testing.T) {
		u := startUpstream(t, func(c *upConn) {
			discardBody(c, c.head())
			c.say(ok200)
		})
		p := startProxy(t, u, func(c *Config) {
			bare(c)
			dials := 0
			c.Default.Upstream.Dial = func(_ context.Context, network, addr string) (net.Conn, error) {
				if dials++; dials == 1 {
					return nil, syscall.ECONNREFUSED
				}
				return net.Dial(network, addr)
			}
		})
		c := p.dial().send(expecting("1.1", 5))
		c.wantRaw(continue100)
		c.send("hello").wantRaw(ok200)
		if strings.Contains(u.head(0), "Expect") {
			t.Errorf("the retry said %q", u.head(0))
		}
	})
	t.Run("continued already", func(t *testing.T) {
		u := startUpstream(t, func(c *upConn) {
			for headers := c.head(); headers != ""; headers = c.head() {
				if c.up.sends() == 1 {
					c.say(continue100)
				}
				c.body(5)
				if c.up.sends() == 1 {
					c.say(bad503)
				} else {
					c.say(continue100 + ok200)
				}
			}
		})
		p := startProxy(t, u, bare)
		c := p.dial().send(expecting("1.1", 5))
		c.wantRaw(continue100)
		c.send("hello").wantRaw(ok200) // no second 100
		if strings.Contains(u.head(1), "Expect") {
			t.Errorf("the retry said %q", u.head(1))
		}
	})
}

const (
	hints103      = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nlink: </b.css>; rel=preload\r\n\r\n"
	processing102 = "HTTP/1.1 102 Processing\r\n\r\n"
)

func TestInterimResponsesAreForwardedAtOnce(t *testing.T) {
	goOn := make(chan struct{})
	u := startUpstream(t, func(c *upConn) {
		c.head()
		for _, s := range []string{hints103, processing102, hints103} {
			c.say("%s", s)
			<-goOn
		}
		c.say(ok200)
	})
	p := startProxy(t, u, bare)
	c := p.dial().send(get("/"))
	for _, s := range []string{hints103, processing102, hints103} {
		c.wantRaw(s)
		goOn <- struct{}{}
	}
	c.wantRaw(ok200)
}

func TestInterimResponsesLoseHopByHopHeaders(t *testing.T) {
	u := startUpstream(t, script("HTTP/1.1 103 Early Hints\r\nConnection: X-Hop, close\r\nX-Hop: 1\r\nKeep-Alive: timeout=3\r\nLink: <a>\r\nProxy-Connection: x\r\n\r\n"+ok200))
	p := startProxy(t, u, bare)
	c := p.dial()
	for range 2 { // "close" in an interim response ends nothing
		c.send(get("/")).wantRaw("HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" + ok200)
	}
}

func TestInterimResponsesOfEveryAttemptAreForwarded(t *testing.T) {
	u := startUpstream(t, script(hints103+bad503, processing102+ok200))
	p := startProxy(t, u, bare)
	p.dial().send(get("/")).wantRaw(hints103 + processing102 + ok200)
}

func TestInterimResponsesAreNotForHTTP10(t *testing.T) {
	u := startUpstream(t, script(hints103+ok200))
	p := startProxy(t, u, bare)
	p.dial().send(requestText("GET / HTTP/1.0")).wantEnd("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
}

func TestAnUnaskedContinueIsNotForwarded(t *testing.T) {
	u := startUpstream(t, script(continue100+ok200))
	p := startProxy(t, u, bare)
	p.dial().send(get("/")).wantRaw(ok200)
}

func TestEndlessInterimResponsesAreAMalformedResponse(t *testing.T) {
	u := startUpstream(t, script(strings.Repeat(processing102, attempt.MaxInformational+1)+ok200))
	p := startProxy(t, u, func(c *Config) { c.Default.Policy.MaxRetries = 0 })
	c := p.dial().send(post(""))
	for range attempt.MaxInformational {
		c.wantRaw(processing102)
	}
	c.want(502, "*")
	if classes := p.seen.classes; len(classes) != 1 || classes[0] != policy.Unknown {
		t.Errorf("classes %v, want one unknown", classes)
	}
}
