package http2

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// What may end a request, before another one takes its stream.
var firstRequests = map[string]func(t *testing.T, p *proxytest.Proxy, client *http.Client, req *http.Request){
	"a body with trailers": func(t *testing.T, p *proxytest.Proxy, client *http.Client, req *http.Request) {
		req.Method, req.Body = "POST", io.NopCloser(strings.NewReader(strings.Repeat("secret", 10_000)))
		req.Trailer = http.Header{"X-Secret": {"s"}}
		finish(t, client, req, true)
	},
	"a failure that is retried": func(t *testing.T, p *proxytest.Proxy, client *http.Client, req *http.Request) {
		req.URL.Path = "/busy"
		finish(t, client, req, true)
	},
	"a deadline that passed": func(t *testing.T, p *proxytest.Proxy, client *http.Client, req *http.Request) {
		req.URL.Path = "/silent"
		req.Header.Set("X-Request-Timeout", "0.05")
		finish(t, client, req, true)
	},
	"a client that left": func(t *testing.T, p *proxytest.Proxy, client *http.Client, req *http.Request) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		req.URL.Path = "/silent"
		finish(t, client, req.WithContext(ctx), false)
	},
	"a body that was cut off": func(t *testing.T, p *proxytest.Proxy, client *http.Client, req *http.Request) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		body, end := io.Pipe()
		defer end.Close()
		req.Method, req.Body, req.ContentLength = "PUT", io.NopCloser(io.MultiReader(strings.NewReader("secret"), body)), -1
		finish(t, client, req.WithContext(ctx), false)
	},
	"a refused request": func(t *testing.T, p *proxytest.Proxy, client *http.Client, req *http.Request) {
		req.Header.Set("X-Secret", strings.Repeat("s", 40<<10))
		finish(t, client, req, true)
	},
}

func finish(t *testing.T, client *http.Client, req *http.Request, responds bool) {
	res, err := client.Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
	if responds != (err == nil) {
		t.Error(err)
	}
}

// A stream, and all that serves it, is used again for the next request of its connection. That request
// is served as if it were the first one. In builds that poison, what it must not read is overwritten.
func TestNothingOfARequestReachesTheNextOnItsStream(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for headers := c.Head(); headers != ""; headers = c.Head() {
			switch {
			case strings.Contains(headers, " /silent "):
				_, _ = c.ReadByte() // until the proxy hangs up
				return
			case strings.Contains(headers, " /busy "):
				c.Say(peers.Bad503)
			default:
				peers.DiscardBody(c, headers)
				c.Say(peers.OK200)
			}
		}
	})
	for name, first := range firstRequests {
		t.Run(name, func(t *testing.T) {
			p := proxytest.Start(t, u, func(c *proxy.Config) {
				peers.SpeakHTTP2(c)
			})
			ask := func(client *http.Client) string {
				before := u.Sends()
				res, body := p.Fetch(client, "GET", "/plain", nil)
				if res.Header.Get("X-Request-Id") == "" || body != "ok" || u.Sends() != before+1 {
					t.Errorf("%v %q", res.Header, body)
				}
				res.Header.Del("X-Request-Id")
				res.Header.Del("Date")
				head, _, _ := strings.Cut(u.Head(before), "X-Request-Id")
				return strings.Join([]string{head, body, res.Status}, "|") + headerText(res.Header)
			}
			want := ask(peers.HTTP2Client(t, nil))
			client := peers.HTTP2Client(t, nil)
			for range 3 {
				req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+p.Addr+"/first", nil)
				if err != nil {
					t.Fatal(err)
				}
				first(t, p, client, req)
				if got := ask(client); got != want {
					t.Errorf("%s\nthe first request of a connection:\n%s", got, want)
				}
			}
		})
	}
}

// A client that does not read a response is waited for as long as ever, whatever its stream served before.
func TestAStreamThatIsUsedAgainIsWaitedForAsLong(t *testing.T) {
	const timeout, window = 5 * time.Second, 10
	for _, before := range []uint32{0, 1} { // requests
		proxytest.InMemory(t, func(c *peers.Conn) {
			for headers := c.Head(); headers != ""; headers = c.Head() {
				c.Say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", window, strings.Repeat("x", window))
			}
		}, func(c *proxy.Config) { peers.SpeakHTTP2(c); c.WriteTimeout = timeout }, func(t *testing.T, m *proxytest.Memory) {
			c := m.Client()
			f := http2.NewFramer(c.Conn, c.Reader)
			ended, reset := make(chan struct{}), make(chan http2.ErrCode)
			go func() {
				for {
					frame, err := f.ReadFrame()
					if err != nil {
						return
					}
					switch frame := frame.(type) {
					case *http2.DataFrame:
						if frame.StreamEnded() {
							ended <- struct{}{}
						}
					case *http2.RSTStreamFrame:
						reset <- frame.ErrCode
					}
				}
			}()
			c.Send(http2.ClientPreface)
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
			for n := range before {
				peers.WriteHeaders(t, f, 2*n+1, "GET", true)
				<-ended
				synctest.Wait()
			}
			began := time.Now()
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window / 2})
			peers.WriteHeaders(t, f, 2*before+1, "GET", true)
			select {
			case <-reset:
				if took := time.Since(began); took < timeout || took > 2*timeout {
					t.Errorf("%d before: reset after %v", before, took)
				}
			case <-time.After(time.Minute):
				t.Errorf("%d before: it is waited for without end", before)
			}
		})
	}
}

func headerText(h http.Header) string {
	var b strings.Builder
	_ = h.Write(&b)
	return b.String()
}
