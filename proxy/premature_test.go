package proxy

import (
	"bytes"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// frameClient is a client of HTTP/2 that writes frames itself and hears all that comes.
type frameClient struct {
	*http2.Framer
	t     *testing.T
	next  uint32
	block bytes.Buffer
	enc   *hpack.Encoder

	pings    chan [8]byte
	statuses chan string // of whole responses
	ended    chan error  // of the connection
	goAways  chan http2.ErrCode
	resets   chan http2.ErrCode // of streams
}

func (p *front) frameClient(t *testing.T) *frameClient {
	c, f := p.begun()
	fc := &frameClient{
		Framer: f, t: t, next: 1, pings: make(chan [8]byte, 1),
		statuses: make(chan string, 10_000), ended: make(chan error, 1), goAways: make(chan http2.ErrCode, 10), resets: make(chan http2.ErrCode, 10_000),
	}
	fc.enc = hpack.NewEncoder(&fc.block)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	go fc.listen()
	return fc
}

func (c *frameClient) listen() {
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			c.ended <- err
			return
		}
		switch frame := frame.(type) {
		case *http2.PingFrame:
			if frame.IsAck() {
				c.pings <- frame.Data
			}
		case *http2.MetaHeadersFrame:
			c.statuses <- frame.PseudoValue("status")
		case *http2.GoAwayFrame:
			c.goAways <- frame.ErrCode
		case *http2.RSTStreamFrame:
			c.resets <- frame.ErrCode
		}
	}
}

// begin sends a request's headers.
func (c *frameClient) begin(method, path string, end bool, fields ...string) (id uint32) {
	c.block.Reset()
	fields = append([]string{":method", method, ":path", path, ":scheme", "http", ":authority", "a"}, fields...)
	for i := 0; i < len(fields); i += 2 {
		_ = c.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	id = c.next
	c.next += 2
	if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.block.Bytes(), EndStream: end, EndHeaders: true}); err != nil {
		c.t.Error(err)
	}
	return id
}

// heard waits until all that was sent was read.
func (c *frameClient) heard() {
	c.t.Helper()
	_ = c.WritePing(false, [8]byte{})
	select {
	case <-c.pings:
	case err := <-c.ended:
		c.t.Fatal("the connection ended: ", err)
	}
}

// Uploads that are cut right after they begin do not affect other requests on their connection.
func TestCutUploadsLeaveOtherStreamsAlone(t *testing.T) {
	const cut, others = 950, 28
	u := startUpstream(t, func(c *upConn) {
		for {
			headers := c.head()
			if headers == "" {
				return
			}
			if strings.HasPrefix(headers, "POST") {
				_, _ = io.Copy(io.Discard, c.Reader)
				return
			}
			c.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	p := startProxy(t, u, speakHTTP2)
	c := p.frameClient(t)
	for n := range 2 * cut {
		id := c.begin("POST", "/cut", false, "content-length", "1000")
		_ = c.WriteData(id, false, []byte("part"))
		_ = c.WriteRSTStream(id, http2.ErrCodeCancel)
		if n%(2*cut/others) == 0 {
			c.begin("GET", "/"+strconv.Itoa(n), true)
		}
	}
	for n := range others {
		select {
		case status := <-c.statuses:
			if status != "200" {
				t.Errorf("answered %s", status)
			}
		case err := <-c.ended:
			t.Fatalf("ended after %d of %d responses: %v", n, others, err)
		}
	}
	c.heard()
}

// A connection whose frames are read slowly is counted, once, and served on.
func TestAFloodOfFramesIsCountedAndServedOn(t *testing.T) {
	var seen refusals
	p := startProxy(t, startUpstream(t, script(ok200)), func(c *Config) { speakHTTP2(c); c.Refused = seen.add })
	c := p.frameClient(t)
	for seen.list() == "" {
		for range 100 {
			_ = c.WritePriority(1, http2.PriorityParam{Weight: 9})
		}
		c.heard() // so that nothing piles up
	}
	c.begin("GET", "/", true)
	if status := <-c.statuses; status != "200" {
		t.Errorf("answered %s", status)
	}
	if got := seen.list(); got != http1.RefusalTooManyFrames.String() {
		t.Errorf("counted as %q", got)
	}
}
