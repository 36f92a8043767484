package proxy

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/retryproxy/retryproxy/proxy/internal/floodguard"
)

// begun is a client of HTTP/2 that writes frames itself.
func (p *front) begun() (*client, *http2.Framer) {
	c := p.dial()
	c.send(http2.ClientPreface)
	f := http2.NewFramer(c.Conn, c.r)
	f.AllowIllegalWrites = true
	_ = f.WriteSettings()
	return c, f
}

// writeHeaders writes a request's headers.
func writeHeaders(t *testing.T, f *http2.Framer, stream uint32, method string, end bool) {
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

// A client that asks by PING about every piece, as gRPC's does, is not cut off.
func TestAClientMayPingForEachPiece(t *testing.T) {
	const pieces = floodguard.IdleFrames + 1000
	next := make(chan struct{}, 1)
	u := startUpstream(t, func(c *upConn) {
		if c.head() == "" {
			return
		}
		c.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for range pieces {
			c.say("1\r\nx\r\n")
			<-next
		}
		c.say("0\r\n\r\n")
	})
	p := startProxy(t, u, speakHTTP2)
	c, f := p.begun()
	writeHeaders(t, f, 1, "GET", true)
	defer close(next)
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	for got := 0; ; {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("after %d of %d pieces: %v", got, pieces, err)
		}
		data, ok := frame.(*http2.DataFrame)
		if !ok {
			continue
		}
		if data.StreamEnded() {
			if got != pieces {
				t.Errorf("%d pieces, want %d", got, pieces)
			}
			return
		}
		got++
		_ = f.WritePing(false, [8]byte{})
		next <- struct{}{}
	}
}

// A client that agreed on HTTP/2, or began to, and then says nothing is not waited for.
func TestAnHTTP2PrefaceMustArriveInTime(t *testing.T) {
	a := newAuthority(t)
	quick := func(c *Config) { speakHTTP2(c); c.ReadHeaderTimeout = 100 * time.Millisecond }
	t.Run("half of it", func(t *testing.T) {
		c := startProxy(t, startUpstream(t, script(ok200)), quick).dial()
		c.send(http2.ClientPreface[:18])
		_, _ = c.rest() // ends
	})
	t.Run("nothing, over TLS", func(t *testing.T) {
		p := startProxy(t, startUpstream(t, script(ok200)), func(c *Config) { quick(c); a.clientsOverTLS(t, c, false) })
		conf := a.client()
		conf.NextProtos = []string{"h2"}
		_, _ = p.dialTLS(conf).rest()
	})
	t.Run("and what follows it need not", func(t *testing.T) {
		p := startProxy(t, startUpstream(t, script(ok200)), quick)
		c, f := p.begun()
		time.Sleep(300 * time.Millisecond)
		_ = f.WritePing(false, [8]byte{})
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if ping, ok := frame.(*http2.PingFrame); ok && ping.IsAck() {
				return
			}
		}
	})
}

// A head has to come in its time over HTTP/2 too, in one frame or in many; no
// other frame has to.
func TestHTTP2HeadersMustArriveInTime(t *testing.T) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	_ = enc.WriteField(hpack.HeaderField{Name: ":method", Value: "GET"})
	for name, begin := range map[string]func(c *client, f *http2.Framer){
		"no CONTINUATION": func(_ *client, f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes()})
		},
		"half a frame": func(c *client, _ *http2.Framer) { c.send("\x00\x00\x64\x01\x05\x00\x00\x00\x01half") },
	} {
		t.Run(name, func(t *testing.T) {
			u := startUpstream(t, script(ok200))
			p := startProxy(t, u, func(c *Config) { speakHTTP2(c); c.ReadHeaderTimeout = 100 * time.Millisecond })
			c, f := p.begun()
			begin(c, f)
			_, _ = c.rest() // ends
			if u.sends() != 0 {
				t.Error("it was sent")
			}
		})
	}
	t.Run("a body may take longer", func(t *testing.T) {
		p := startProxy(t, echoUpstream(t), func(c *Config) { speakHTTP2(c); c.ReadHeaderTimeout = 100 * time.Millisecond })
		r, w := io.Pipe()
		go func() {
			time.Sleep(300 * time.Millisecond)
			_, _ = io.WriteString(w, strings.Repeat("x", 1000))
			_ = w.Close()
		}()
		res, body := p.fetch(http2Client(t, nil), http.MethodPost, "/", r)
		if res.StatusCode != 200 || len(body) != 1000 {
			t.Errorf("%d %d", res.StatusCode, len(body))
		}
	})
}
