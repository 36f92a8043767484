package http2

import (
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/retryproxy/retryproxy/proxy/internal/floodguard"
)

// Frames of a client that carry nothing are read slowly when there are too many, the client is told to go away
// if it does not stop, and its other streams go on. Frames that carry something are not counted.
func TestAFloodOfAClientIsSlowedAndToldToGoAway(t *testing.T) {
	for name, tc := range map[string]struct {
		send    func(p *peer) error
		counted bool
		resets  bool
	}{
		"PING":          {func(p *peer) error { return p.WritePing(true, [8]byte{}) }, true, false},
		"SETTINGS":      {func(p *peer) error { return p.WriteSettingsAck() }, true, false},
		"PRIORITY":      {func(p *peer) error { return p.WritePriority(9, http2.PriorityParam{}) }, true, false},
		"GOAWAY":        {func(p *peer) error { return p.WriteGoAway(0, 0, nil) }, true, false},
		"unknown":       {func(p *peer) error { return p.WriteRawFrame(99, 0, 0, make([]byte, 300)) }, true, false},
		"DATA, empty":   {func(p *peer) error { return p.WriteData(1, false, nil) }, true, false},
		"RST_STREAM":    {func(p *peer) error { return p.WriteRSTStream(p.begin(true, getFields...), 8) }, true, true},
		"window of 0":   {func(p *peer) error { return p.WriteWindowUpdate(p.begin(true, getFields...), 0) }, true, true},
		"window of all": {func(p *peer) error { return p.WriteWindowUpdate(p.begin(true, getFields...), maxWindow) }, true, true},
		"depends on it": {func(p *peer) error {
			id := p.begin(true, getFields...)
			return p.WritePriority(id, http2.PriorityParam{StreamDep: id})
		}, true, true},
		"DATA behind END": {func(p *peer) error { return p.WriteData(p.begin(true, getFields...), false, []byte("x")) }, true, true},
		"DATA":            {func(p *peer) error { return p.WriteData(1, false, []byte("x")) }, false, false},
		"WINDOW_UPDATE":   {func(p *peer) error { return p.WriteWindowUpdate(1, 1) }, false, false},
		"CONTINUATION": {func(p *peer) error {
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: p.id + 1, EndStream: true})
			p.id += 2
			p.text.Reset()
			return p.WriteContinuation(p.id-1, true, []byte{0x82, 0x86, 0x84, 0x01, 0x01, 'h'})
		}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var slowed atomic.Int32
				o := options(func(s *textStream) {
					if _, err := readHead(s); err != nil || s.ID() != 1 {
						<-s.Done() // it ends with its stream alone
						return
					}
					_, _ = io.Copy(io.Discard, s)
				})
				o.Streams, o.Slowed = 50, func() { slowed.Add(1) }
				p := dialFrames(t, o)
				p.answers.Store(true)
				p.begin(false, getFields...)
				began := time.Now()
				var soon time.Duration // when resets are counted, and other frames are not yet too many
				for i := range floodguard.IdleFrames + 10_000 {
					if tc.send(p) != nil {
						break
					}
					if i == 800 {
						soon = time.Since(began)
					}
				}
				took := time.Since(began)
				if tc.resets != (soon > 0) {
					t.Errorf("800 frames took %v", soon)
				}
				if tc.counted != (slowed.Load() == 1) || tc.counted && took < 5*time.Second || !tc.counted && took > 0 {
					t.Errorf("%v, slowed down %d times", took, slowed.Load())
				}
				if tc.counted {
					p.want("away 2147483647 NO_ERROR")
				}
			})
		})
	}
}

// A client that gets something may send a frame for each piece of a body and for each response, as gRPC's client does,
// and is not read more slowly.
func TestWhatAClientGetsEarnsItFrames(t *testing.T) {
	const n = floodguard.IdleFrames + 100
	for name, tc := range map[string]struct {
		serve func(s *textStream, next <-chan struct{})
		next  func(p *peer, i int)
	}{
		"pieces": {func(s *textStream, next <-chan struct{}) {
			_, _ = io.WriteString(s, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			for range next {
				_, _ = io.WriteString(s, "1\r\nx\r\n")
			}
		}, func(p *peer, i int) {
			if i == 0 {
				p.begin(true, getFields...)
			}
			p.want(`1: "x"`)
		}},
		"responses": {func(s *textStream, next <-chan struct{}) {
			<-next
			_, _ = io.WriteString(s, "HTTP/1.1 204 No Content\r\n\r\n")
		}, func(p *peer, i int) {
			p.want(fmt.Sprintf("%d: :status=204", p.begin(true, getFields...)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				next := make(chan struct{}, 1)
				o := options(func(s *textStream) {
					_, _ = readHead(s)
					tc.serve(s, next)
				})
				o.Slowed = func() { t.Error("it was read more slowly") }
				p := dialFrames(t, o)
				began := time.Now()
				for i := range n {
					next <- struct{}{}
					tc.next(p, i)
					_ = p.WritePing(false, [8]byte{})
					p.want("pong")
				}
				close(next)
				if took := time.Since(began); took > 0 {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}
