package proxy

import (
	"bufio"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/downstream"
)

const largeSize = 64 << 20

// pattern is n bytes that differ from their shifted selves.
type pattern struct{ at, n int }

func (p *pattern) Read(b []byte) (int, error) {
	if p.at == p.n {
		return 0, io.EOF
	}
	n := min(len(b), p.n-p.at)
	copy(b[:n], patternBlock[p.at%251:])
	n = min(n, len(patternBlock)-p.at%251)
	p.at += n
	return n, nil
}

var patternBlock = func() []byte {
	b := make([]byte, 251*1024)
	for i := range b {
		b[i] = byte(i % 251)
	}
	return b
}()

func sum(r io.Reader) (n int64, crc uint32) {
	h := crc32.NewIEEE()
	n, _ = io.Copy(h, r)
	return n, h.Sum32()
}

func patternSum(n int) uint32 {
	_, crc := sum(&pattern{n: n})
	return crc
}

// Large bodies each way, by splice where both sides are TCP and the length is
// known, by copying elsewhere.
func TestLargeBodiesArriveWhole(t *testing.T) {
	for _, tc := range []struct {
		name          string
		size          int
		unix, chunked bool
	}{{"spliced", largeSize, false, false}, {"copied", largeSize, true, false}, {"chunked", largeSize / 4, false, true}} {
		t.Run(tc.name, func(t *testing.T) {
			size, want := tc.size, patternSum(tc.size)
			handle := func(c *upConn) {
				for {
					req, err := http.ReadRequest(c.Reader)
					if err != nil {
						return
					}
					if req.Method == "PUT" {
						n, crc := sum(req.Body)
						c.say("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n%9d %10d", n, crc)
						continue
					}
					if tc.chunked {
						c.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
						sendChunks(c.Conn, size)
					} else {
						c.say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
						_, _ = io.Copy(c.Conn, &pattern{n: size})
					}
				}
			}
			p, u := startFor(t, tc.unix, handle, nil)
			c := p.dial()
			c.send(get("/"))
			res, err := http.ReadResponse(c.r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if n, crc := sum(res.Body); n != int64(size) || crc != want {
				t.Fatalf("GET: %d bytes, sum %d; want %d, %d", n, crc, size, want)
			}
			if tc.chunked {
				c.send(requestText("PUT / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked"))
				sendChunks(c.Conn, size)
			} else {
				c.send(requestText("PUT / HTTP/1.1", "Host: a", fmt.Sprintf("Content-Length: %d", size)))
				_, _ = io.Copy(c.Conn, &pattern{n: size})
			}
			c.want(200, fmt.Sprintf("%9d %10d", size, want))
			c.send(requestText("PUT / HTTP/1.1", "Host: a", "Content-Length: 0")).want(200, fmt.Sprintf("%9d %10d", 0, 0)) // still in step
			if u.connections() != 1 {
				t.Errorf("%d upstream connections, want 1", u.connections())
			}
		})
	}
}

// sendChunks sends a chunked body of n bytes of the pattern.
func sendChunks(w io.Writer, n int) {
	buffered := bufio.NewWriterSize(w, 1<<17)
	piece := make([]byte, 60_000)
	for p := (&pattern{n: n}); ; {
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

// startFor is startUpstream and startProxy over TCP or a unix socket.
func startFor(t *testing.T, unix bool, handle func(c *upConn), change func(*Config)) (*testProxy, *fakeUpstream) {
	t.Helper()
	if !unix {
		u := startUpstream(t, handle)
		return startProxy(t, u, change), u
	}
	path := t.TempDir() + "/up.sock"
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	u := serveListener(t, l, handle)
	return startProxyTo(t, "unix:"+path, change), u
}

// The end of an upload does not disturb a large response in flight.
func TestALargeResponseOutlivesTheEndOfTheUpload(t *testing.T) {
	const size = 200_000
	uploaded := make(chan struct{})
	u := startUpstream(t, func(c *upConn) {
		c.head()
		c.say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size/2))
		c.body(10)
		close(uploaded)
		time.Sleep(3 * downstream.PollEvery)
		c.say("%s", strings.Repeat("y", size/2))
	})
	p := startProxy(t, u, nil)
	c := p.dial().send(requestText("POST / HTTP/1.1", "Host: a", "Content-Length: 10") + "12345")
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.CopyN(io.Discard, res.Body, size/2)
	time.Sleep(downstream.PollEvery / 2) // the proxy waits for more of the response
	c.send("67890")
	within(t, "the end of the upload", uploaded)
	if rest, err := io.ReadAll(res.Body); len(rest) != size/2 || err != nil {
		t.Errorf("then came %d bytes, %v; want %d", len(rest), err, size/2)
	}
	p.wantOutcome(0, policy.OutcomeSuccess)
}

// A slow but steady upstream and client are served however long it takes: the
// time allowed is per pause, not for the whole.
func TestALargeResponseMaySlowDown(t *testing.T) {
	const size, steps = 400_000, 8
	u := startUpstream(t, func(c *upConn) {
		c.head()
		c.say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
		for range steps {
			c.say("%s", strings.Repeat("x", size/steps))
			time.Sleep(downstream.PollEvery / 2)
		}
	})
	p := startProxy(t, u, func(c *Config) { c.Default.BodyIdleTimeout = 3 * downstream.PollEvery })
	_, body, err := p.dial().send(get("/")).response("GET")
	if len(body) != size || err != nil {
		t.Errorf("%d bytes, %v; want %d", len(body), err, size)
	}
	p.wantOutcome(0, policy.OutcomeSuccess)
}
