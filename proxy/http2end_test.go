package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/internal/floodguard"
)

// A response with a length is whole before its stream ends. The upstream's handler,
// which may still be at work then, is not told that its client left.
func TestAnHTTP2UpstreamMayEndItsStreamAfterTheResponse(t *testing.T) {
	later, told := make(chan struct{}), make(chan error, 1)
	addr := http2Server(t, nil, false, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "2")
		_, _ = io.WriteString(w, "ok")
		if r.URL.Path == "/late" {
			_ = http.NewResponseController(w).Flush()
			<-later
			told <- r.Context().Err()
		}
	})
	p := startProxyTo(t, "h2c://"+addr, nil)
	c := p.dial()
	c.send("GET /late HTTP/1.1\r\nHost: a\r\n\r\n").want(200, "ok")
	eventually(t, "the stream is released", func() bool { return p.Stats().Upstreams[0].Pool.Streams == 0 })
	for range 10 { // a reset would overtake these
		c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").want(200, "ok")
	}
	close(later)
	if err := <-told; err != nil {
		t.Errorf("it was told %v", err)
	}
	if st := p.Stats().Upstreams[0].Pool; st.Dials != 1 {
		t.Errorf("%d connections", st.Dials)
	}
}

// Streams that an upstream does not end are held open in a bounded number.
func TestStreamsThatDoNotEndAreBounded(t *testing.T) {
	const most, more = 256, 20
	resets := make(chan uint32, most+more)
	u := startUpstream(t, func(c *upConn) {
		if _, err := c.Reader.Discard(len(floodguard.Preface)); err != nil {
			return
		}
		f := &framer{http2.NewFramer(c.Conn, c.Reader), c}
		f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		_ = f.WriteSettings()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.MetaHeadersFrame:
				f.respondOpen(frame.StreamID, "200", "ok", "content-length", "2")
			case *http2.RSTStreamFrame:
				resets <- frame.StreamID
			}
		}
	})
	p := startProxyTo(t, "h2c://"+u.Addr().String(), nil)
	c := p.dial()
	for range most + more {
		c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").want(200, "ok")
	}
	for range more {
		<-resets
	}
	if n := len(resets); n > 0 {
		t.Errorf("%d more were reset", n)
	}
}

// A response with a declared length is whole with its last byte also for a client over HTTP/2, though the
// upstream resets its stream in place of ending it.
func TestAResetBehindTheLastByteCutsNothing(t *testing.T) {
	u := startUpstream(t, func(c *upConn) {
		if _, err := c.Reader.Discard(len(floodguard.Preface)); err != nil {
			return
		}
		f := &framer{http2.NewFramer(c.Conn, c.Reader), c}
		f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		_ = f.WriteSettings()
		for frame, err := f.ReadFrame(); err == nil; frame, err = f.ReadFrame() {
			if frame, is := frame.(*http2.MetaHeadersFrame); is {
				f.respondOpen(frame.StreamID, "200", "ok", "content-length", "2")
				_ = f.WriteRSTStream(frame.StreamID, http2.ErrCodeNo)
			}
		}
	})
	p := startProxyTo(t, "h2c://"+u.Addr().String(), speakHTTP2)
	if res, body := p.fetch(http2Client(t, nil), "POST", "/", strings.NewReader("x")); res.StatusCode != 200 || body != "ok" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	p.wantOutcome(0, policy.OutcomeSuccess)
}
