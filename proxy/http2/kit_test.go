package http2

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// peer is a client that writes frames.
type peer struct {
	*http2.Framer
	t    *testing.T
	nc   net.Conn
	text bytes.Buffer
	enc  *hpack.Encoder
	id   uint32

	answers atomic.Bool // to pings
	pings   atomic.Int32
	credit  atomic.Int64 // of the connection

	mu   sync.Mutex
	seen []string // what came, without SETTINGS
	more chan struct{}
	over chan struct{}
}

// dialFrames serves a connection and returns its client.
func dialFrames(t *testing.T, o *Options) *peer {
	t.Helper()
	near, far := net.Pipe()
	ended := make(chan struct{})
	go func() { NewConn(far, o).Run(); _ = far.Close(); close(ended) }()
	p := newPeer(t, near)
	go p.read()
	t.Cleanup(func() { _ = near.Close(); <-ended; <-p.over; o.Workers.Close() })
	if _, err := io.WriteString(near, Preface); err != nil {
		t.Fatal(err)
	}
	_ = p.WriteSettings()
	return p
}

func newPeer(t *testing.T, nc net.Conn) *peer {
	p := &peer{Framer: http2.NewFramer(nc, nc), t: t, nc: nc, more: make(chan struct{}, 1), over: make(chan struct{})}
	p.AllowIllegalWrites, p.AllowIllegalReads = true, true
	p.enc = hpack.NewEncoder(&p.text)
	return p
}

func (p *peer) read() {
	defer close(p.over)
	fields := hpack.NewDecoder(4096, nil)
	for {
		f, err := p.ReadFrame()
		if err != nil {
			p.note("end")
			return
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			all, err := fields.DecodeFull(f.HeaderBlockFragment())
			if err != nil {
				p.t.Error(err)
			}
			text := fmt.Sprintf("%d:", f.StreamID)
			for _, h := range all {
				text += " " + h.Name + "=" + h.Value
			}
			if f.StreamEnded() {
				text += " end"
			}
			p.note(text)
		case *http2.DataFrame:
			text := fmt.Sprintf("%d: %q", f.StreamID, f.Data())
			if f.StreamEnded() {
				text += " end"
			}
			p.note(text)
		case *http2.RSTStreamFrame:
			p.note(fmt.Sprintf("%d: reset %v", f.StreamID, f.ErrCode))
		case *http2.GoAwayFrame:
			p.note(fmt.Sprintf("away %d %v", f.LastStreamID, f.ErrCode))
		case *http2.PingFrame:
			if !f.IsAck() {
				p.pings.Add(1)
			}
			switch {
			case f.IsAck():
				p.note("pong")
			case p.answers.Load():
				_, _ = p.nc.Write(append([]byte{0, 0, 8, framePing, flagAck, 0, 0, 0, 0}, f.Data[:]...)) // the Framer is the test's
			}
		case *http2.WindowUpdateFrame:
			if f.StreamID != 0 {
				p.note(fmt.Sprintf("%d: window", f.StreamID))
			} else {
				p.credit.Add(int64(f.Increment))
			}
		}
	}
}

func (p *peer) note(what string) {
	p.mu.Lock()
	p.seen = append(p.seen, what)
	p.mu.Unlock()
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// want waits for a frame that begins with what, and returns it.
func (p *peer) want(what string) string {
	p.t.Helper()
	for {
		p.mu.Lock()
		i := slices.IndexFunc(p.seen, func(s string) bool { return strings.HasPrefix(s, what) })
		var got string
		if i >= 0 {
			got = p.seen[i]
			p.seen = slices.Delete(p.seen, i, i+1)
		}
		all := strings.Join(p.seen, "; ")
		p.mu.Unlock()
		if i >= 0 {
			return got
		}
		select {
		case <-p.more:
		case <-time.After(time.Minute):
			p.t.Fatalf("no %q among %s", what, all)
		}
	}
}

var getFields = []string{":method", "GET", ":scheme", "http", ":authority", "h.test", ":path", "/a?b"}

// abandon ends a connection that nobody serves.
func (l *link) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail(nil)
	l.releaseOut()
}

// begin opens a stream.
func (p *peer) begin(ends bool, fields ...string) uint32 {
	p.id += 2
	p.headers(p.id-1, ends, fields...)
	return p.id - 1
}

// headers writes a header section.
func (p *peer) headers(id uint32, ends bool, fields ...string) {
	p.text.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = p.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.text.Bytes(), EndStream: ends, EndHeaders: true})
}

func with(fields ...string) []string { return append(slices.Clip(getFields), fields...) }

// echo responds with what it read of a request that has no body.
func echo(s *textStream) {
	head, err := readHead(s)
	if err != nil {
		return
	}
	fmt.Fprintf(s, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(head), head)
}
