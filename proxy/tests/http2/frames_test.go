package http2

import (
	"bytes"
	"crypto/tls"
	"io"
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
	a, valid := peers.NewAuthority(t), time.Now()
	var overTLS proxy.Config // whose certificate is not of the fake time
	a.ClientsOverTLS(t, &overTLS, false)
	inTime := func(t *testing.T, change func(*proxy.Config), test func(t *testing.T, c *peers.Client)) {
		proxytest.InMemory(t, peers.Script(peers.OK200), func(c *proxy.Config) {
			peers.SpeakHTTP2(c)
			c.ReadHeaderTimeout = time.Second
			change(c)
		}, func(t *testing.T, m *proxytest.Memory) { test(t, m.Client()) })
	}
	t.Run("half of it", func(t *testing.T) {
		inTime(t, func(*proxy.Config) {}, func(t *testing.T, c *peers.Client) {
			c.Send(http2.ClientPreface[:18])
			wantEndAfter(t, c.Reader, time.Second)
		})
	})
	t.Run("nothing, over TLS", func(t *testing.T) {
		inTime(t, func(c *proxy.Config) { c.TLS = overTLS.TLS }, func(t *testing.T, c *peers.Client) {
			conf := a.Client()
			conf.NextProtos, conf.Time = []string{"h2"}, func() time.Time { return valid }
			secure := tls.Client(c.Conn, conf)
			if err := secure.Handshake(); err != nil {
				t.Fatal(err)
			}
			wantEndAfter(t, secure, time.Second)
		})
	})
	t.Run("and what follows it need not", func(t *testing.T) {
		inTime(t, func(*proxy.Config) {}, func(t *testing.T, c *peers.Client) {
			f := http2.NewFramer(c.Conn, c.Reader)
			go func() {
				c.Send(http2.ClientPreface)
				_ = f.WriteSettings()
				time.Sleep(3 * time.Second)
				_ = f.WritePing(false, [8]byte{})
			}()
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
	})
}

// wantEndAfter checks that a connection ends after that time.
func wantEndAfter(t *testing.T, c io.Reader, want time.Duration) {
	t.Helper()
	began := time.Now()
	if _, err := io.Copy(io.Discard, c); time.Since(began) != want {
		t.Errorf("it ended after %v: %v", time.Since(began), err)
	}
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
			proxytest.InMemory(t, peers.Script(peers.OK200), func(c *proxy.Config) { peers.SpeakHTTP2(c); c.ReadHeaderTimeout = time.Second }, func(t *testing.T, m *proxytest.Memory) {
				c := m.Client()
				c.Send(http2.ClientPreface)
				f := http2.NewFramer(c.Conn, nil)
				_ = f.WriteSettings()
				begin(c, f)
				wantEndAfter(t, c.Reader, time.Second)
				if m.Up.Sends() != 0 {
					t.Error("it was sent")
				}
			})
		})
	}
	t.Run("a body may take longer", func(t *testing.T) {
		proxytest.InMemory(t, func(c *peers.Conn) {
			peers.DiscardBody(c, c.Head())
			c.Say(peers.OK200)
		}, func(c *proxy.Config) { peers.SpeakHTTP2(c); c.ReadHeaderTimeout = time.Second }, func(t *testing.T, m *proxytest.Memory) {
			c := m.Client()
			f := http2.NewFramer(c.Conn, c.Reader)
			f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
			go func() {
				c.Send(http2.ClientPreface)
				_ = f.WriteSettings()
				peers.WriteHeaders(t, f, 1, "POST", false)
				time.Sleep(3 * time.Second)
				_ = f.WriteData(1, true, make([]byte, 1000))
			}()
			for {
				frame, err := f.ReadFrame()
				if err != nil {
					t.Fatal(err)
				}
				if head, ok := frame.(*http2.MetaHeadersFrame); ok {
					if status := head.PseudoValue("status"); status != "200" {
						t.Error(status)
					}
					return
				}
			}
		})
	})
}
