package proxy

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// hooked is a client's connection as the proxy has it: after calls afterWrite behind each
// write, in the goroutine that wrote.
type hooked struct {
	net.Conn
	afterWrite func(p []byte)
}

func (h *hooked) Write(p []byte) (int, error) {
	n, err := h.Conn.Write(p)
	h.afterWrite(p)
	return n, err
}

// hookedClient is client for a connection with a hook.
func (m *memory) hookedClient(after func(c *client, p []byte)) *client {
	theirs, ours := net.Pipe()
	c := &client{Conn: theirs, r: bufio.NewReader(theirs), t: m.t}
	go m.ServeConn(&hooked{ours, func(p []byte) { after(c, p) }}, "")
	m.t.Cleanup(func() { theirs.Close() })
	return c
}

// A client finishes its body as soon as it has the last bytes of an early response. No more of it
// is sent upstream, and no other request gets that connection.
func TestABodyThatEndsAfterItsResponseReachesNobody(t *testing.T) {
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
	for name, response := range map[string]string{
		"length":   "HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nlast",
		"in parts": "HTTP/1.1 403 Forbidden\r\nContent-Length: 8\r\n\r\nmost|last",
		"chunked":  "HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nlast\r\n|0\r\n\r\n",
		"no body":  "HTTP/1.1 204 last\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			var early strings.Builder
			handle := func(c *upConn) {
				if c.head() == "" || c.n > 1 {
					c.say(ok200)
					return
				}
				for _, part := range strings.Split(response, "|") {
					c.say("%s", part)
					time.Sleep(time.Second)
				}
				_, _ = io.Copy(&early, c)
			}
			inMemory(t, handle, bare, func(t *testing.T, m *memory) {
				sent := false
				c := m.hookedClient(func(c *client, p []byte) {
					over := strings.Contains(string(p), "last")
					if name == "chunked" {
						over = strings.Contains(string(p), "0\r\n\r\n")
					}
					if !over || sent {
						return
					}
					sent = true
					go func() { _, _ = io.WriteString(c.Conn, smuggled) }()
					time.Sleep(5 * time.Second) // all others come to rest
				})
				c.send(requestText("POST / HTTP/1.1", "Host: a", "Content-Length: 35"))
				if res, _, err := c.response("POST"); err != nil || res.StatusCode/100 == 5 {
					t.Fatalf("%v, %v", res, err)
				}
				time.Sleep(time.Minute)
				c.Close()
				m.client().send(get("/")).want(200, "ok")
				synctest.Wait()
				if got := early.String(); got != "" || m.up.connections() != 2 {
					t.Errorf("the upstream got %q after its response; %d connections, want 2", got, m.up.connections())
				}
			})
		})
	}
}

// If the upstream may see the end of the request elsewhere than the proxy, its connection is not
// reused.
func TestAConnectionIsUsedAgainOnlyWhereBothSidesSawTheRequestEnd(t *testing.T) {
	long := strings.Repeat("x", 100)
	for name, tc := range map[string]struct {
		request, response string
		again             bool
	}{
		"POST":                           {requestText("POST / HTTP/1.1", "Host: a", "Content-Length: 100") + long, ok200, true},
		"GET":                            {get("/"), ok200, true},
		"GET, length 0":                  {requestText("GET / HTTP/1.1", "Host: a", "Content-Length: 0"), ok200, true},
		"GET with a body":                {requestText("GET / HTTP/1.1", "Host: a", "Content-Length: 100") + long, ok200, false},
		"GET with a chunked body":        {requestText("GET / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + "1\r\nx\r\n0\r\n\r\n", ok200, false},
		"HEAD with a body":               {requestText("HEAD / HTTP/1.1", "Host: a", "Content-Length: 100") + long, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", false},
		"OPTIONS with a body":            {requestText("OPTIONS / HTTP/1.1", "Host: a", "Content-Length: 100") + long, ok200, false},
		"DELETE with a body":             {requestText("DELETE / HTTP/1.1", "Host: a", "Content-Length: 100") + long, ok200, false},
		"DELETE":                         {requestText("DELETE / HTTP/1.1", "Host: a"), ok200, true},
		"a DELETE that is held":          {requestText("DELETE / HTTP/1.1", "Host: a", "Content-Length: 100") + long, bad503, false},
		"expecting, with the body":       {expecting("1.1", 100) + long, ok200, true},
		"expecting, continued":           {expecting("1.1", 100), continue100 + "|" + ok200, true},
		"expecting, answered without it": {expecting("1.1", 100), "|" + ok200, false},
	} {
		t.Run(name, func(t *testing.T) {
			parts := strings.Split(tc.response, "|")
			handle := func(c *upConn) {
				for headers := c.head(); headers != ""; headers = c.head() {
					if strings.HasPrefix(headers, "POST /next") {
						c.say(ok200)
						continue
					}
					if parts[0] == continue100 {
						c.say(continue100)
					}
					discardBody(c, headers)
					c.say("%s", parts[len(parts)-1])
				}
			}
			inMemory(t, handle, func(c *Config) { bare(c); c.Default.Policy.MaxRetries = 0 }, func(t *testing.T, m *memory) {
				c := m.client().send(tc.request)
				if len(parts) > 1 {
					if parts[0] != "" {
						c.wantRaw(parts[0])
					}
					time.Sleep(time.Second)
					c.send(long)
				}
				if _, _, err := c.response(strings.Fields(tc.request)[0]); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				m.client().send(requestText("POST /next HTTP/1.1", "Host: a", "Content-Length: 0")).want(200, "ok")
				if got := m.up.connections() == 1; got != tc.again {
					t.Errorf("%d connections; used again %v, want %v", m.up.connections(), got, tc.again)
				}
			})
		})
	}
}

// A request whose body is here does not ask the upstream for a 100: an upstream that responds at
// once may parse the body as the next request.
func TestExpectIsDroppedWhereTheBodyIsHere(t *testing.T) {
	for name, body := range map[string]string{"whole": "hello", "begun": "he"} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, script(ok200), bare, func(t *testing.T, m *memory) {
				c := m.client().send(expecting("1.1", 5) + body)
				time.Sleep(time.Second)
				if rest := "hello"[len(body):]; rest != "" {
					c.send(rest)
				}
				c.wantRaw(ok200)
				if strings.Contains(m.up.head(0), "Expect") {
					t.Errorf("the upstream got %q", m.up.head(0))
				}
			})
		})
	}
}

// A response that lies unread when the last bytes of its request are sent came before them.
func TestAResponseThatLiesUnreadWhenItsRequestEndsIsEarly(t *testing.T) {
	answered := make(chan struct{}, 1)
	u := startUpstream(t, func(c *upConn) {
		for headers := c.head(); headers != ""; headers = c.head() {
			c.say(ok200)
			answered <- struct{}{}
			if c.n == 1 {
				c.body(5)
			}
		}
	})
	p := startProxy(t, u, bare)
	c := p.dial().send(requestText("POST / HTTP/1.1", "Host: a", "Content-Length: 5"))
	within(t, "the response", answered)
	_, _ = io.WriteString(c.Conn, "hello") // on a slow machine the response was relayed before
	c.want(200, "ok")
	p.wantOutcome(0, policy.OutcomeSuccess)
	p.dial().send(get("/")).want(200, "ok")
	<-answered
	if u.connections() != 2 {
		t.Errorf("%d connections, want 2", u.connections())
	}
}
