package proxy

import (
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
)

// A wait's end that comes late must not end the watch over the client.
func TestAStrayDeadlineDoesNotEndTheWatch(t *testing.T) {
	arrived := make(chan struct{})
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		close(arrived)
		c.Head() // ends when the proxy gives the attempt up
	})
	p := startProxy(t, u, nil)
	c := p.Dial().Send(peers.Get("/"))
	peers.Within(t, "the request upstream", arrived)
	time.Sleep(2 * downstream.PollEvery) // the watch runs
	p.connected.each(func(c *conn) { _ = c.client.NC.SetReadDeadline(downstream.Past) })
	time.Sleep(downstream.PollEvery / 2)
	c.Close()
	if o := p.Seen.Outcome(t, 0); o != policy.OutcomeClientGone {
		t.Errorf("outcome %v", o)
	}
}

// A wake-up by a drain, or by a permit, that was meant for the wait before a spliced upload may
// arrive during the upload. It does not affect the upload.
func TestALateWakeUpDoesNotCutAnUpload(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		req, err := http.ReadRequest(c.Reader)
		if err != nil {
			return
		}
		got, _ := io.ReadAll(req.Body)
		c.Say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n%10d", crc32.ChecksumIEEE(got))
	})
	p := startProxy(t, u, nil)
	c := p.Dial()
	body := make([]byte, 64<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(body)
	c.Send(peers.RequestText("PUT / HTTP/1.1", "Host: a", fmt.Sprintf("Content-Length: %d", len(body))))
	const piece = 1 << 20
	for n := range 20 {
		if _, err := c.Write(body[n*piece : (n+1)*piece]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // the proxy reads all of it and waits for more
		p.connected.each(func(c *conn) { _ = c.client.Wire.SetReadDeadline(downstream.Past) })
	}
	_, _ = c.Write(body[20*piece:])
	c.Want(200, fmt.Sprintf("%10d", crc32.ChecksumIEEE(body)))
}
