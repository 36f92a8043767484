package http2

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

func upstreamOptions() UpstreamOptions {
	return UpstreamOptions{Limits: Limits{ReadAhead: ReadAhead{Window: 64 << 10}, HeaderBytes: 64 << 10, HeaderTimeout: 10 * time.Second, PingAfter: 15 * time.Second, WriteTimeout: 10 * time.Second}}
}

// toUpstream makes a connection to an upstream that the test plays.
func toUpstream(t *testing.T, o UpstreamOptions, settings ...http2.Setting) (*peer, *Upstream) {
	t.Helper()
	near, far := net.Pipe()
	c := NewUpstream(near, &o)
	ended := make(chan struct{})
	go func() { c.Run(); close(ended) }()
	p := newPeer(t, far)
	t.Cleanup(func() { _ = far.Close(); <-ended; <-p.over })
	if _, err := io.ReadFull(far, make([]byte, len(Preface))); err != nil {
		t.Fatal(err)
	}
	go p.read()
	_ = p.WriteSettings(settings...)
	_ = p.WriteSettingsAck()
	return p, c
}

// sync waits until c has handled what was written.
func (p *peer) sync() {
	p.t.Helper()
	_ = p.WritePing(false, [8]byte{})
	p.want("pong")
}

// ask opens a stream and sends a request, whose headers end with an empty line.
func ask(t *testing.T, c *Upstream, request string) *textUpstream {
	t.Helper()
	s := newTextUpstream(c.Open())
	if s == nil {
		t.Fatal("no room")
	}
	t.Cleanup(func() { _ = s.Close() })
	_ = s.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(s, request); err != nil {
		t.Fatal(err)
	}
	return s
}

const getRequest = "GET /a?b HTTP/1.1\r\nHost: h.test\r\n\r\n"

func postRequest(length int) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: h.test\r\nContent-Length: %d\r\n\r\n", length)
}

// respondedWith reads a response, and returns its status, body and error.
func respondedWith(s io.Reader, method string) (status int, body string, err error) {
	res, err := http.ReadResponse(bufio.NewReader(s), &http.Request{Method: method})
	if err != nil {
		return 0, "", err
	}
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

func newPipe(t *testing.T) (near, far net.Conn) {
	near, far = net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near, far
}

// realUpstream serves HTTP/2 without TLS by net/http.
func realUpstream(t *testing.T, h http.HandlerFunc) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().String()
}

func dialReal(t *testing.T, addr string) *Upstream {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	o := upstreamOptions()
	c := NewUpstream(nc, &o)
	ended := make(chan struct{})
	go func() { c.Run(); close(ended) }()
	t.Cleanup(func() { _ = nc.Close(); <-ended })
	return c
}

// opened waits for room for a stream.
func opened(c *Upstream) *textUpstream {
	for {
		if s := newTextUpstream(c.Open()); s != nil {
			return s
		}
		time.Sleep(time.Millisecond)
	}
}
