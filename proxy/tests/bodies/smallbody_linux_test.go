package bodies

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// segments is how many segments with data have come in on a connection. Small
// enough writes make one each.
func segments(t *testing.T, c *peers.Conn) uint32 {
	t.Helper()
	raw, err := c.Conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Error(err)
		return 0
	}
	var info *unix.TCPInfo
	if e := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); e != nil || err != nil {
		t.Error(e, err)
		return 0
	}
	return info.Data_segs_in
}

// A body that came with its headers, or right after them, is sent with its headers, in one write.
func TestASmallBodyLeavesWithItsHead(t *testing.T) {
	if !rawsocket.WritevIsOneCall {
		t.Skip("the race detector's build writes part by part")
	}
	for _, size := range []int{1, 2 << 10, 16 << 10, 30 << 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			u := peers.StartUpstream(t, func(c *peers.Conn) {
				for first, n := uint32(0), uint32(0); ; n++ {
					req, err := http.ReadRequest(c.Reader)
					if err != nil {
						return
					}
					if got, err := io.Copy(io.Discard, req.Body); err != nil || req.Method == "POST" && got != int64(size) {
						t.Errorf("%d of %d bytes: %v", got, size, err)
					}
					if n == 1 {
						first = segments(t, c) // the system itself may cut what it sends first
					} else if s := segments(t, c) - first; n > 1 && s != n-1 {
						t.Errorf("%d segments for %d requests", s, n-1)
					}
					c.Say(peers.OK200)
				}
			})
			p := proxytest.Start(t, u, nil)
			c := p.Dial()
			for range 3 { // after another request it is read in two pieces, after its like in one
				c.Send(peers.Get("/")).Want(200, "ok")
				c.Send(peers.Post(strings.Repeat("b", size))).Want(200, "ok")
				c.Send(peers.Post(strings.Repeat("b", size))).Want(200, "ok")
			}
		})
	}
}

// However a small body arrives, and whatever follows it, each attempt carries exactly that body.
func TestSmallBodiesInPieces(t *testing.T) {
	for _, size := range []int{1, 4000, 16 << 10, 64 << 10, 64<<10 + 1, 200 << 10} {
		for _, cuts := range []int{1, 2, 7} {
			t.Run(fmt.Sprintf("%d in %d", size, cuts), func(t *testing.T) {
				want := patternSum(size)
				u := peers.StartUpstream(t, func(c *peers.Conn) {
					for n := 0; ; n++ {
						req, err := http.ReadRequest(c.Reader)
						if err != nil {
							return
						}
						if req.Method == "PUT" {
							if got, crc := sum(req.Body); got != int64(size) || crc != want {
								t.Errorf("attempt %s: %d bytes, checksum %x, want %d, %x", req.Header.Get("X-Retryproxy-Attempt"), got, crc, size, want)
							}
							if req.Header.Get("X-Retryproxy-Attempt") == "1" {
								c.Say(peers.Bad503)
								continue
							}
						}
						c.Say(peers.OK200)
					}
				})
				p := proxytest.Start(t, u, nil)
				c := p.Dial()
				for range 2 {
					body, err := io.ReadAll(&peers.Pattern{N: size})
					if err != nil {
						t.Fatal(err)
					}
					whole := fmt.Sprintf("PUT /p HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s%s", size, body, peers.Get("/behind"))
					for i := range cuts {
						c.Send(whole[len(whole)*i/cuts : len(whole)*(i+1)/cuts])
						if cuts > 1 {
							time.Sleep(time.Millisecond) // so that some pieces come alone; nothing depends on which
						}
					}
					c.Want(200, "ok")
					c.Want(200, "ok")
				}
			})
		}
	}
}

// A body that is not kept is sent right although pieces of it are gathered.
func TestASmallBodyThatIsNotKept(t *testing.T) {
	const size = 60 << 10
	for name, change := range map[string]func(c *proxy.Config){
		"too large":   func(c *proxy.Config) { c.Default.RetryBufferBytes = 10 << 10 },
		"memory full": func(c *proxy.Config) { c.RetryBufferTotalBytes = 20 << 10 },
	} {
		t.Run(name, func(t *testing.T) {
			want := patternSum(size)
			u := peers.StartUpstream(t, func(c *peers.Conn) {
				for {
					req, err := http.ReadRequest(c.Reader)
					if err != nil {
						return
					}
					if n, crc := sum(req.Body); n != size || crc != want {
						t.Errorf("%d bytes, checksum %x, want %d, %x", n, crc, size, want)
					}
					c.Say(peers.OK200)
				}
			})
			p := proxytest.Start(t, u, change)
			c := p.Dial()
			for range 20 {
				body, _ := io.ReadAll(&peers.Pattern{N: size})
				c.Send(fmt.Sprintf("POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", size, body)).Want(200, "ok")
			}
		})
	}
}
