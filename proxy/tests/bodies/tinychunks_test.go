package bodies

import (
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// A body in tiny chunks does not cost a write for each: what arrived together is sent together, as
// the same bytes.
func TestTinyChunksAreJoined(t *testing.T) {
	const n = 2000
	var body, wire strings.Builder
	for i := range n {
		b := string(rune('a' + i%26))
		body.WriteString(b)
		wire.WriteString("1\r\n" + b + "\r\n")
	}
	got, chunks := make(chan string, 1), make(chan int, 1)
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		all, count := "", 0
		for {
			line, err := c.ReadString('\n')
			if err != nil || line == "0\r\n" {
				break
			}
			size := 0
			for _, d := range strings.TrimSpace(line) {
				size = size*16 + strings.IndexRune("0123456789abcdef", d)
			}
			all += c.Body(size)
			c.Body(2)
			count++
		}
		trailers, _ := c.ReadString('\n')
		end, _ := c.ReadString('\n')
		got <- all + "|" + trailers + end
		chunks <- count
		c.Say(peers.OK200)
	})
	p := proxytest.Start(t, u, nil)
	c := p.Dial()
	c.Send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + wire.String() + "0\r\nX-Sum: 7\r\n\r\n" + peers.Get("/next"))
	c.Want(200, "ok")
	if g, want := <-got, body.String()+"|X-Sum: 7\r\n\r\n"; g != want {
		t.Errorf("the body differs: %d bytes, want %d", len(g), len(want))
	}
	if k := <-chunks; k > n/10 {
		t.Errorf("%d chunks upstream for %d that came together", k, n)
	}
}
