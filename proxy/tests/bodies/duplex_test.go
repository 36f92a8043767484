package bodies

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// echo responds at once and sends every piece of the body back as it arrives.
func echo(c *peers.Conn) {
	headers := c.Head()
	if headers == "" {
		return
	}
	req, err := http.ReadRequest(newReader(headers, c))
	if err != nil {
		c.T.Errorf("upstream cannot read the request: %v", err)
		return
	}
	c.Say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
	buf := make([]byte, 32<<10)
	for {
		n, err := req.Body.Read(buf)
		if n > 0 {
			c.Say("%x\r\n%s\r\n", n, buf[:n])
		}
		if err != nil {
			break
		}
	}
	c.Say("0\r\n\r\n")
}

func TestFullDuplexEcho(t *testing.T) {
	const pieces = 20
	for _, size := range []int{1, 10000} {
		for _, chunked := range []bool{false, true} {
			for _, pause := range []time.Duration{0, 2 * time.Millisecond} {
				t.Run(fmt.Sprintf("%d chunked=%v pause=%v", size, chunked, pause), func(t *testing.T) {
					u := peers.StartUpstream(t, echo)
					p := proxytest.Start(t, u, nil)
					c := p.Dial()
					if chunked {
						c.Send(peers.RequestText("POST / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked"))
					} else {
						c.Send(peers.RequestText("POST / HTTP/1.1", "Host: a", fmt.Sprintf("Content-Length: %d", pieces*size)))
					}
					res, err := http.ReadResponse(c.Reader, nil)
					if err != nil {
						t.Fatalf("no response before the body: %v", err)
					}
					for i := range pieces {
						piece := strings.Repeat(string(rune('a'+i)), size)
						if chunked {
							c.Send(fmt.Sprintf("%x\r\n%s\r\n", size, piece))
						} else {
							c.Send(piece)
						}
						got := make([]byte, size)
						if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != piece {
							t.Fatalf("piece %d came back as %.20q, %v", i, got, err)
						}
						time.Sleep(pause)
					}
					if chunked {
						c.Send("0\r\n\r\n")
					}
					if rest, err := io.ReadAll(res.Body); len(rest) > 0 || err != nil {
						t.Errorf("after the last piece came %q, %v", rest, err)
					}
					p.WantOutcome(0, policy.OutcomeSuccess)
				})
			}
		}
	}
}

// The client sends a byte now and then, and the upstream responds after the first few: the
// response does not wait for the body.
func TestAResponseDoesNotWaitForATricklingBody(t *testing.T) {
	for _, chunked := range []bool{false, true} {
		u := peers.StartUpstream(t, func(c *peers.Conn) {
			c.Head()
			c.Body(1)
			c.Say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			_, _ = c.EndOfInput()
		})
		p := proxytest.Start(t, u, nil)
		c := p.Dial()
		if chunked {
			c.Send(peers.RequestText("POST / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked"))
		} else {
			c.Send(peers.RequestText("POST / HTTP/1.1", "Host: a", "Content-Length: 1000000"))
		}
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				case <-time.After(attempt.InlineWait / 20):
				}
				piece := "x"
				if chunked {
					piece = "1\r\nx\r\n"
				}
				if _, err := io.WriteString(c.Conn, piece); err != nil {
					return
				}
			}
		}()
		c.Want(200, "ok")
		close(stop)
		<-stopped
	}
}

// The size line of a chunk may come in pieces, long after the head.
func TestAChunkSizeMayComeInPieces(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, nil)
	c := p.Dial().Send(peers.RequestText("POST / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + "1")
	for _, piece := range []string{"0", "\r", "\n0123456789abcdef", "\r\n", "0\r\n", "\r\n"} {
		time.Sleep(2 * attempt.InlineWait)
		c.Send(piece)
	}
	c.Want(200, "ok")
}

func TestTricklingBodiesAreFlushedAtOnce(t *testing.T) {
	allHeaders := map[string]string{
		"chunked": "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
		"close":   "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n",
		"length":  "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
	}
	for name, headers := range allHeaders {
		for _, version := range []string{"1.1", "1.0"} {
			t.Run(name+" to "+version, func(t *testing.T) {
				seen := make(chan struct{})
				u := peers.StartUpstream(t, func(c *peers.Conn) {
					c.Head()
					c.Say("%s", headers)
					for range seen {
						if event := "data: x\n\n"; name == "chunked" {
							c.Say("%x\r\n%s\r\n", len(event), event)
						} else {
							c.Say("%s", event)
						}
					}
				})
				p := proxytest.Start(t, u, nil)
				c := p.Dial().Send(peers.RequestText("GET / HTTP/"+version, "Host: a"))
				res, err := http.ReadResponse(c.Reader, nil) // the head alone is flushed
				if err != nil {
					t.Fatal(err)
				}
				for i := range 5 {
					seen <- struct{}{} // the next event is sent when the one before has arrived
					got := make([]byte, 9)
					if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != "data: x\n\n" {
						t.Fatalf("event %d: %q, %v", i, got, err)
					}
				}
				close(seen)
			})
		}
	}
}

// An upstream that responds, closes and leaves the body unread resets the connection under the
// upload. Its response still reaches the client.
func TestAnEarlyResponseSurvivesTheResetAfterIt(t *testing.T) {
	const size = 8 << 20
	for name, headers := range map[string]string{
		"spliced": peers.RequestText("POST / HTTP/1.1", "Host: a", fmt.Sprintf("Content-Length: %d", size)),
		"chunked": peers.RequestText("POST / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + fmt.Sprintf("%x\r\n", size),
	} {
		t.Run(name, func(t *testing.T) {
			u := peers.StartUpstream(t, func(c *peers.Conn) {
				c.Head()
				c.Body(100_000)
				c.Say("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig")
			})
			p := proxytest.Start(t, u, nil)
			c := p.Dial().Send(headers)
			sent := make(chan struct{})
			go func() { defer close(sent); _, _ = io.Copy(c.Conn, &peers.Pattern{N: size}) }()
			if res := c.Want(413, "big"); !res.Close {
				t.Error("the connection is said to go on although the upload was given up")
			}
			c.Close()
			<-sent
			p.WantOutcome(0, policy.OutcomeSuccess)
		})
	}
}

// The rest of an upload after an early response is not parsed as a request.
func TestWhatFollowsAnEarlyResponseIsNotServed(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		c.Say("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
		_, _ = c.EndOfInput()
	})
	p := proxytest.Start(t, u, peers.AddNothingToResponses)
	c := p.Dial().Send(peers.RequestText("POST / HTTP/1.1", "Host: a", fmt.Sprintf("Content-Length: %d", len(peers.Get("/smuggled"))*2)))
	c.WantRaw("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
	c.Send(peers.Get("/smuggled") + peers.Get("/smuggled") + peers.Get("/smuggled"))
	c.WantEnd("")
	if u.Sends() != 1 {
		t.Errorf("%d sends, want 1", u.Sends())
	}
}

// TestLargePiecesBothWaysAtOnce: the upstream answers at once, in pieces that
// are larger than any buffer, while the request's body still comes in small ones.
func TestLargePiecesBothWaysAtOnce(t *testing.T) {
	const size = 4 << 20
	up, _ := io.ReadAll(&peers.Pattern{N: size})
	down := slices.Clone(up)
	slices.Reverse(down)
	got := make(chan []byte, 1)
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		headers := c.Head()
		if headers == "" {
			return
		}
		most := make(chan struct{})
		go func() {
			defer close(most)
			c.Say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", size, down[1:])
		}()
		req, err := http.ReadRequest(newReader(headers, c))
		if err != nil {
			c.T.Errorf("upstream cannot read the request: %v", err)
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			c.T.Errorf("upstream cannot read the body: %v", err)
		}
		<-most
		c.Say("%s", down[:1]) // a response that is whole ends the upload
		got <- body
	})
	a := peers.NewAuthority(t)
	p := proxytest.Start(t, u, func(c *proxy.Config) { a.ClientsOverTLS(t, c, false) })
	c := p.DialTLS(a.Client())
	c.Send(peers.RequestText("POST / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked"))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for rest := up; len(rest) > 0; rest = rest[1<<10:] {
			fmt.Fprintf(c, "400\r\n%s\r\n", rest[:1<<10])
		}
		io.WriteString(c, "0\r\n\r\n")
	}()
	res, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(res.Body); err != nil || !bytes.Equal(body, append(down[1:], down[0])) {
		t.Errorf("%d bytes of %d came down, not as they were, %v", len(body), size, err)
	}
	<-sent
	if body := <-got; !bytes.Equal(body, up) {
		t.Errorf("%d bytes of %d came up, not as they were", len(body), size)
	}
}
