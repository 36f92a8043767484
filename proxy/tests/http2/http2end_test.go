package http2

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// A response with a length is whole before its stream ends. The upstream's handler,
// which may still be at work then, is not told that its client left.
func TestAnHTTP2UpstreamMayEndItsStreamAfterTheResponse(t *testing.T) {
	later, told := make(chan struct{}), make(chan error, 1)
	addr := peers.HTTP2Server(t, nil, false, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "2")
		_, _ = io.WriteString(w, "ok")
		if r.URL.Path == "/late" {
			_ = http.NewResponseController(w).Flush()
			<-later
			told <- r.Context().Err()
		}
	})
	p := proxytest.StartTo(t, "h2c://"+addr, nil)
	c := p.Dial()
	c.Send("GET /late HTTP/1.1\r\nHost: a\r\n\r\n").Want(200, "ok")
	peers.Soon(t, "the stream is released", func() bool { return p.Stats().Upstreams[0].Pool.Streams == 0 })
	for range 10 { // a reset would overtake these
		c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").Want(200, "ok")
	}
	close(later)
	if err := <-told; err != nil {
		t.Errorf("it was told %v", err)
	}
	if st := p.Stats().Upstreams[0].Pool; st.Dials != 1 {
		t.Errorf("%d connections", st.Dials)
	}
}

// endsNoStream responds to all with that body, whose length it declares, and ends no stream. It passes on which
// streams the proxy resets.
func endsNoStream(resets chan<- uint32, status, body string) func(c *peers.Conn) {
	return eachFrame(func(f *framer, frame http2.Frame) {
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			f.respondOpen(frame.StreamID, status, body, "content-length", strconv.Itoa(len(body)))
		case *http2.RSTStreamFrame:
			resets <- frame.StreamID
		}
	})
}

// Streams that an upstream does not end are held open in a bounded number.
func TestStreamsThatDoNotEndAreBounded(t *testing.T) {
	const most, more = 256, 20
	resets := make(chan uint32, most+more)
	u := peers.StartUpstream(t, endsNoStream(resets, "200", "ok"))
	p := proxytest.StartTo(t, "h2c://"+u.Addr().String(), nil)
	c := p.Dial()
	for range most + more {
		c.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").Want(200, "ok")
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
	u := peers.StartUpstream(t, frames(func(f *framer, id uint32) {
		f.respondOpen(id, "200", "ok", "content-length", "2")
		_ = f.WriteRSTStream(id, http2.ErrCodeNo)
	}))
	p := proxytest.StartTo(t, "h2c://"+u.Addr().String(), peers.SpeakHTTP2)
	if res, body := p.Fetch(peers.HTTP2Client(t, nil), "POST", "/", strings.NewReader("x")); res.StatusCode != 200 || body != "ok" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	p.WantOutcome(0, policy.OutcomeSuccess)
}

// For a client over HTTP/1.1 a response with a declared length is whole with its last byte, so a retry does not
// wait for the end of the stream, and the last failed response keeps its length.
func TestARetryDoesNotWaitForTheEndOfAStream(t *testing.T) {
	resets := make(chan uint32, 100)
	u := peers.StartUpstream(t, endsNoStream(resets, "503", "busy"))
	p := proxytest.StartTo(t, "h2c://"+u.Addr().String(), nil)
	res := p.Dial().Send(peers.Get("/")).Want(503, "busy")
	if res.ContentLength != 4 || res.Header.Get("X-Retryproxy-Attempts") != "4" {
		t.Errorf("%d %v", res.ContentLength, res.Header)
	}
	if n := len(resets); n > 0 { // an attempt that was not read whole is reset
		t.Errorf("%d attempts were reset", n)
	}
}

// A failed response that is declared too large to be kept is relayed without reading it first, over HTTP/2 too.
func TestAResponseThatIsDeclaredTooLargeIsRelayedAtOnce(t *testing.T) {
	u := peers.StartUpstream(t, frames(func(f *framer, id uint32) { f.respondOpen(id, "503", "busy", "content-length", "1000000") }))
	p := proxytest.StartTo(t, "h2c://"+u.Addr().String(), peers.SpeakHTTP2)
	res, err := peers.HTTP2Client(t, nil).Get("http://" + p.Addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != 503 || res.ContentLength != 1_000_000 || res.Header.Get("X-Retryproxy-Attempts") != "1" || res.Header.Get("X-Retryproxy-Reason") != "response_too_large" {
		t.Errorf("%d, %d bytes, %v", res.StatusCode, res.ContentLength, res.Header)
	}
}
