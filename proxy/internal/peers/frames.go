package peers

import (
	"bytes"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// FrameClient is a client of HTTP/2 that writes frames itself and hears all that comes.
type FrameClient struct {
	*http2.Framer
	t     *testing.T
	Next  uint32
	Block bytes.Buffer
	Enc   *hpack.Encoder

	pings    chan [8]byte
	Statuses chan string // of whole responses
	Ended    chan error  // of the connection
	GoAways  chan http2.ErrCode
	Resets   chan http2.ErrCode // of streams
}

// DialFrames opens an HTTP/2 connection of which the test writes the frames.
func (p *Front) DialFrames(t *testing.T) *FrameClient {
	c, f := p.DialFramer()
	fc := &FrameClient{
		Framer: f, t: t, Next: 1, pings: make(chan [8]byte, 1),
		Statuses: make(chan string, 10_000), Ended: make(chan error, 1), GoAways: make(chan http2.ErrCode, 10), Resets: make(chan http2.ErrCode, 10_000),
	}
	fc.Enc = hpack.NewEncoder(&fc.Block)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = c.SetReadDeadline(time.Now().Add(Patience))
	go fc.listen()
	return fc
}

func (c *FrameClient) listen() {
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			c.Ended <- err
			return
		}
		switch frame := frame.(type) {
		case *http2.PingFrame:
			if frame.IsAck() {
				c.pings <- frame.Data
			}
		case *http2.MetaHeadersFrame:
			c.Statuses <- frame.PseudoValue("status")
		case *http2.GoAwayFrame:
			c.GoAways <- frame.ErrCode
		case *http2.RSTStreamFrame:
			c.Resets <- frame.ErrCode
		}
	}
}

// Begin sends a request's headers.
func (c *FrameClient) Begin(method, path string, end bool, fields ...string) (id uint32) {
	c.Block.Reset()
	fields = append([]string{":method", method, ":path", path, ":scheme", "http", ":authority", "a"}, fields...)
	for i := 0; i < len(fields); i += 2 {
		_ = c.Enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	id = c.Next
	c.Next += 2
	if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.Block.Bytes(), EndStream: end, EndHeaders: true}); err != nil {
		c.t.Error(err)
	}
	return id
}

// Heard waits until all that was sent was read.
func (c *FrameClient) Heard() {
	c.t.Helper()
	_ = c.WritePing(false, [8]byte{})
	select {
	case <-c.pings:
	case err := <-c.Ended:
		c.t.Fatal("the connection ended: ", err)
	}
}

// DialFramer is a client of HTTP/2 that writes frames itself.
func (p *Front) DialFramer() (*Client, *http2.Framer) {
	c := p.Dial()
	c.Send(http2.ClientPreface)
	f := http2.NewFramer(c.Conn, c.Reader)
	f.AllowIllegalWrites = true
	_ = f.WriteSettings()
	return c, f
}

// WriteHeaders writes a request's headers.
func WriteHeaders(t *testing.T, f *http2.Framer, stream uint32, method string, end bool) {
	t.Helper()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, field := range []hpack.HeaderField{{Name: ":method", Value: method}, {Name: ":path", Value: "/"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "a"}} {
		_ = enc.WriteField(field)
	}
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndStream: end, EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
}
