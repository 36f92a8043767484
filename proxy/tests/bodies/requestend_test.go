package bodies

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
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
func hookedClient(m *proxytest.Memory, after func(c *peers.Client, p []byte)) *peers.Client {
	theirs, ours := net.Pipe()
	c := &peers.Client{Conn: theirs, Reader: bufio.NewReader(theirs), T: m.T}
	go m.ServeConn(&hooked{ours, func(p []byte) { after(c, p) }}, "")
	m.T.Cleanup(func() { theirs.Close() })
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
			handle := func(c *peers.Conn) {
				if c.Head() == "" || c.N > 1 {
					c.Say(peers.OK200)
					return
				}
				for _, part := range strings.Split(response, "|") {
					c.Say("%s", part)
					time.Sleep(time.Second)
				}
				_, _ = io.Copy(&early, c)
			}
			proxytest.InMemory(t, handle, peers.AddNothingToResponses, func(t *testing.T, m *proxytest.Memory) {
				sent := false
				c := hookedClient(m, func(c *peers.Client, p []byte) {
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
				c.Send(peers.RequestText("POST / HTTP/1.1", "Host: a", "Content-Length: 35"))
				if res, _, err := c.Response("POST"); err != nil || res.StatusCode/100 == 5 {
					t.Fatalf("%v, %v", res, err)
				}
				time.Sleep(time.Minute)
				c.Close()
				m.Client().Send(peers.Get("/")).Want(200, "ok")
				synctest.Wait()
				if got := early.String(); got != "" || m.Up.Connections() != 2 {
					t.Errorf("the upstream got %q after its response; %d connections, want 2", got, m.Up.Connections())
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
		"POST":                           {peers.RequestText("POST / HTTP/1.1", "Host: a", "Content-Length: 100") + long, peers.OK200, true},
		"GET":                            {peers.Get("/"), peers.OK200, true},
		"GET, length 0":                  {peers.RequestText("GET / HTTP/1.1", "Host: a", "Content-Length: 0"), peers.OK200, true},
		"GET with a body":                {peers.RequestText("GET / HTTP/1.1", "Host: a", "Content-Length: 100") + long, peers.OK200, false},
		"GET with a chunked body":        {peers.RequestText("GET / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + "1\r\nx\r\n0\r\n\r\n", peers.OK200, false},
		"HEAD with a body":               {peers.RequestText("HEAD / HTTP/1.1", "Host: a", "Content-Length: 100") + long, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", false},
		"OPTIONS with a body":            {peers.RequestText("OPTIONS / HTTP/1.1", "Host: a", "Content-Length: 100") + long, peers.OK200, false},
		"DELETE with a body":             {peers.RequestText("DELETE / HTTP/1.1", "Host: a", "Content-Length: 100") + long, peers.OK200, false},
		"DELETE":                         {peers.RequestText("DELETE / HTTP/1.1", "Host: a"), peers.OK200, true},
		"a DELETE that is held":          {peers.RequestText("DELETE / HTTP/1.1", "Host: a", "Content-Length: 100") + long, peers.Bad503, false},
		"expecting, with the body":       {expecting("1.1", 100) + long, peers.OK200, true},
		"expecting, continued":           {expecting("1.1", 100), continue100 + "|" + peers.OK200, true},
		"expecting, answered without it": {expecting("1.1", 100), "|" + peers.OK200, false},
	} {
		t.Run(name, func(t *testing.T) {
			parts := strings.Split(tc.response, "|")
			handle := func(c *peers.Conn) {
				for headers := c.Head(); headers != ""; headers = c.Head() {
					if strings.HasPrefix(headers, "POST /next") {
						c.Say(peers.OK200)
						continue
					}
					if parts[0] == continue100 {
						c.Say(continue100)
					}
					peers.DiscardBody(c, headers)
					c.Say("%s", parts[len(parts)-1])
				}
			}
			proxytest.InMemory(t, handle, func(c *proxy.Config) { peers.AddNothingToResponses(c); c.Default.Policy.MaxRetries = 0 }, func(t *testing.T, m *proxytest.Memory) {
				c := m.Client().Send(tc.request)
				if len(parts) > 1 {
					if parts[0] != "" {
						c.WantRaw(parts[0])
					}
					time.Sleep(time.Second)
					c.Send(long)
				}
				if _, _, err := c.Response(strings.Fields(tc.request)[0]); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				m.Client().Send(peers.RequestText("POST /next HTTP/1.1", "Host: a", "Content-Length: 0")).Want(200, "ok")
				if got := m.Up.Connections() == 1; got != tc.again {
					t.Errorf("%d connections; used again %v, want %v", m.Up.Connections(), got, tc.again)
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
			proxytest.InMemory(t, peers.Script(peers.OK200), peers.AddNothingToResponses, func(t *testing.T, m *proxytest.Memory) {
				c := m.Client().Send(expecting("1.1", 5) + body)
				time.Sleep(time.Second)
				if rest := "hello"[len(body):]; rest != "" {
					c.Send(rest)
				}
				c.WantRaw(peers.OK200)
				if strings.Contains(m.Up.Head(0), "Expect") {
					t.Errorf("the upstream got %q", m.Up.Head(0))
				}
			})
		})
	}
}

// A response that lies unread when the last bytes of its request are sent came before them.
func TestAResponseThatLiesUnreadWhenItsRequestEndsIsEarly(t *testing.T) {
	answered := make(chan struct{}, 1)
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			c.Say(peers.OK200)
			answered <- struct{}{}
			if c.N == 1 {
				c.Body(5)
			}
		}
	})
	p := proxytest.Start(t, u, peers.AddNothingToResponses)
	c := p.Dial().Send(peers.RequestText("POST / HTTP/1.1", "Host: a", "Content-Length: 5"))
	peers.Within(t, "the response", answered)
	_, _ = io.WriteString(c.Conn, "hello") // on a slow machine the response was relayed before
	c.Want(200, "ok")
	p.WantOutcome(0, policy.OutcomeSuccess)
	p.Dial().Send(peers.Get("/")).Want(200, "ok")
	<-answered
	if u.Connections() != 2 {
		t.Errorf("%d connections, want 2", u.Connections())
	}
}
