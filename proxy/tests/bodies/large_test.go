package bodies

import (
	"bufio"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

func sum(r io.Reader) (n int64, crc uint32) {
	h := crc32.NewIEEE()
	n, _ = io.Copy(h, r)
	return n, h.Sum32()
}

func patternSum(n int) uint32 {
	_, crc := sum(&peers.Pattern{N: n})
	return crc
}

// Large bodies each way, by splice where both sides are TCP and the length is
// known, by copying elsewhere.
func TestLargeBodiesArriveWhole(t *testing.T) {
	for _, tc := range []struct {
		name          string
		size          int
		unix, chunked bool
	}{{"spliced", peers.LargeSize, false, false}, {"copied", peers.LargeSize, true, false}, {"chunked", peers.LargeSize / 4, false, true}} {
		t.Run(tc.name, func(t *testing.T) {
			size, want := tc.size, patternSum(tc.size)
			handle := func(c *peers.Conn) {
				for {
					req, err := http.ReadRequest(c.Reader)
					if err != nil {
						return
					}
					if req.Method == "PUT" {
						n, crc := sum(req.Body)
						c.Say("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n%9d %10d", n, crc)
						continue
					}
					if tc.chunked {
						c.Say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
						sendChunks(c.Conn, size)
					} else {
						c.Say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
						_, _ = io.Copy(c.Conn, &peers.Pattern{N: size})
					}
				}
			}
			p, u := proxytest.StartFor(t, tc.unix, handle, nil)
			c := p.Dial()
			c.Send(peers.Get("/"))
			res, err := http.ReadResponse(c.Reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			if n, crc := sum(res.Body); n != int64(size) || crc != want {
				t.Fatalf("GET: %d bytes, sum %d; want %d, %d", n, crc, size, want)
			}
			if tc.chunked {
				c.Send(peers.RequestText("PUT / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked"))
				sendChunks(c.Conn, size)
			} else {
				c.Send(peers.RequestText("PUT / HTTP/1.1", "Host: a", fmt.Sprintf("Content-Length: %d", size)))
				_, _ = io.Copy(c.Conn, &peers.Pattern{N: size})
			}
			c.Want(200, fmt.Sprintf("%9d %10d", size, want))
			c.Send(peers.RequestText("PUT / HTTP/1.1", "Host: a", "Content-Length: 0")).Want(200, fmt.Sprintf("%9d %10d", 0, 0)) // still in step
			if u.Connections() != 1 {
				t.Errorf("%d upstream connections, want 1", u.Connections())
			}
		})
	}
}

// sendChunks sends a chunked body of n bytes of the pattern.
func sendChunks(w io.Writer, n int) {
	buffered := bufio.NewWriterSize(w, 1<<17)
	piece := make([]byte, 60_000)
	for p := (&peers.Pattern{N: n}); ; {
		k, err := io.ReadFull(p, piece)
		if k > 0 {
			fmt.Fprintf(buffered, "%x\r\n%s\r\n", k, piece[:k])
		}
		if err != nil {
			break
		}
	}
	_, _ = buffered.WriteString("0\r\n\r\n")
	_ = buffered.Flush()
}

// The end of an upload does not disturb a large response in flight.
func TestALargeResponseOutlivesTheEndOfTheUpload(t *testing.T) {
	const size = 200_000
	uploaded := make(chan struct{})
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		c.Say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size/2))
		c.Body(10)
		close(uploaded)
		time.Sleep(3 * downstream.PollEvery)
		c.Say("%s", strings.Repeat("y", size/2))
	})
	p := proxytest.Start(t, u, nil)
	c := p.Dial().Send(peers.RequestText("POST / HTTP/1.1", "Host: a", "Content-Length: 10") + "12345")
	res, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.CopyN(io.Discard, res.Body, size/2)
	time.Sleep(downstream.PollEvery / 2) // the proxy waits for more of the response
	c.Send("67890")
	peers.Within(t, "the end of the upload", uploaded)
	if rest, err := io.ReadAll(res.Body); len(rest) != size/2 || err != nil {
		t.Errorf("then came %d bytes, %v; want %d", len(rest), err, size/2)
	}
	p.WantOutcome(0, policy.OutcomeSuccess)
}

// A slow but steady upstream and client are served however long it takes: the
// time allowed is per pause, not for the whole.
func TestALargeResponseMaySlowDown(t *testing.T) {
	const size, steps = 400_000, 8
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		c.Say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
		for range steps {
			c.Say("%s", strings.Repeat("x", size/steps))
			time.Sleep(downstream.PollEvery / 2)
		}
	})
	p := proxytest.Start(t, u, func(c *proxy.Config) { c.Default.BodyIdleTimeout = 3 * downstream.PollEvery })
	_, body, err := p.Dial().Send(peers.Get("/")).Response("GET")
	if len(body) != size || err != nil {
		t.Errorf("%d bytes, %v; want %d", len(body), err, size)
	}
	p.WantOutcome(0, policy.OutcomeSuccess)
}
