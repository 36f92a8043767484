package http2

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/floodguard"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// A client that asks by PING about every piece, as gRPC's does, is not cut off.
func TestAClientMayPingForEachPiece(t *testing.T) {
	const pieces = floodguard.IdleFrames + 1000
	next := make(chan struct{}, 1)
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		if c.Head() == "" {
			return
		}
		c.Say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for range pieces {
			c.Say("1\r\nx\r\n")
			<-next
		}
		c.Say("0\r\n\r\n")
	})
	p := proxytest.Start(t, u, peers.SpeakHTTP2)
	c, f := p.DialFramer()
	peers.WriteHeaders(t, f, 1, "GET", true)
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
	a := peers.NewAuthority(t)
	quick := func(c *proxy.Config) { peers.SpeakHTTP2(c); c.ReadHeaderTimeout = 100 * time.Millisecond }
	t.Run("half of it", func(t *testing.T) {
		c := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.OK200)), quick).Dial()
		c.Send(http2.ClientPreface[:18])
		_, _ = c.Rest() // ends
	})
	t.Run("nothing, over TLS", func(t *testing.T) {
		p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *proxy.Config) { quick(c); a.ClientsOverTLS(t, c, false) })
		conf := a.Client()
		conf.NextProtos = []string{"h2"}
		_, _ = p.DialTLS(conf).Rest()
	})
	t.Run("and what follows it need not", func(t *testing.T) {
		p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.OK200)), quick)
		c, f := p.DialFramer()
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
	for name, begin := range map[string]func(c *peers.Client, f *http2.Framer){
		"no CONTINUATION": func(_ *peers.Client, f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes()})
		},
		"half a frame": func(c *peers.Client, _ *http2.Framer) { c.Send("\x00\x00\x64\x01\x05\x00\x00\x00\x01half") },
	} {
		t.Run(name, func(t *testing.T) {
			u := peers.StartUpstream(t, peers.Script(peers.OK200))
			p := proxytest.Start(t, u, func(c *proxy.Config) { peers.SpeakHTTP2(c); c.ReadHeaderTimeout = 100 * time.Millisecond })
			c, f := p.DialFramer()
			begin(c, f)
			_, _ = c.Rest() // ends
			if u.Sends() != 0 {
				t.Error("it was sent")
			}
		})
	}
	t.Run("a body may take longer", func(t *testing.T) {
		p := proxytest.Start(t, echoUpstream(t), func(c *proxy.Config) { peers.SpeakHTTP2(c); c.ReadHeaderTimeout = 100 * time.Millisecond })
		r, w := io.Pipe()
		go func() {
			time.Sleep(300 * time.Millisecond)
			_, _ = io.WriteString(w, strings.Repeat("x", 1000))
			_ = w.Close()
		}()
		res, body := p.Fetch(peers.HTTP2Client(t, nil), http.MethodPost, "/", r)
		if res.StatusCode != 200 || len(body) != 1000 {
			t.Errorf("%d %d", res.StatusCode, len(body))
		}
	})
}
