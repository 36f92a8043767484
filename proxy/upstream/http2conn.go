package upstream

import (
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/proxy/bridge"
)

// Errors of reading the response to a request sent by HTTP/2, if the upstream certainly did
// not process the request.
var (
	// ErrRefused: the upstream sent REFUSED_STREAM (RFC 9113 section 8.7).
	ErrRefused = errors.New("the upstream refused the stream")
	// ErrUnprocessed: the connection was shutting down (GOAWAY with a lower last stream,
	// RFC 9113 section 6.8) or had ended before the request was sent on it.
	ErrUnprocessed = errors.New("the upstream ended the connection before it processed the request")
)

// defaultStreams is how many streams a connection is expected to allow, until one has said it. It
// is the least that servers should allow (RFC 9113 section 6.5.2).
const defaultStreams = 100

// settleWithin is how long the SETTINGS of the upstream are waited for. After it, defaultStreams
// are allowed, as by an upstream whose SETTINGS do not limit them.
const settleWithin = time.Second

// http2Conn is an HTTP/2 connection.
type http2Conn struct {
	*http.ClientConn
	pool      *http2Pool
	addr      string
	wire      net.Conn
	settings  settingsReader // over wire
	createdAt time.Time
	uploads   bridge.Uploads

	uses        atomic.Int64 // streams taken
	unprocessed atomic.Int64 // those of them that the upstream did not process, since it ended the connection
	goneAway    atomic.Bool  // the upstream sent GOAWAY, and had not processed all streams

	isSettled atomic.Bool // it is known how many streams are allowed
	mu        sync.Mutex  // guards the fields below
	settled   func()      // called once isSettled is true; nil: no one waits
	timer     *time.Timer // ends the wait for SETTINGS
}

func newHTTP2Conn(s *http2Pool, addr string, wire net.Conn) *http2Conn {
	c := &http2Conn{pool: s, addr: addr, wire: wire, createdAt: time.Now()}
	c.settings.Conn, c.settings.seen = wire, c.settle
	return c
}

// attach sets the ClientConn, which reads already.
func (c *http2Conn) attach(cc *http.ClientConn) {
	c.mu.Lock()
	c.ClientConn = cc
	settled := c.isSettled.Load()
	c.mu.Unlock()
	if settled {
		c.noteStreams(cc)
	}
}

// noteStreams records how many streams the connection allows.
func (c *http2Conn) noteStreams(cc *http.ClientConn) {
	if n := cc.Available() + cc.InFlight(); n > 0 && cc.Err() == nil {
		c.pool.mu.Lock()
		c.pool.streams = n
		c.pool.mu.Unlock()
	}
}

// settle records that the upstream's SETTINGS are in force, or that there will be none.
func (c *http2Conn) settle() {
	if c.isSettled.Load() {
		return
	}
	c.mu.Lock()
	first := !c.isSettled.Swap(true)
	do, cc := c.settled, c.ClientConn
	c.settled = nil
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	if first && cc != nil {
		c.noteStreams(cc)
	}
	if do != nil {
		do()
	}
}

// whenSettled calls do once it is known how many streams c allows, possibly at once.
func (c *http2Conn) whenSettled(do func()) {
	c.mu.Lock()
	if !c.isSettled.Load() {
		c.settled, do = do, nil
		c.timer = time.AfterFunc(settleWithin, c.settle)
	}
	c.mu.Unlock()
	if do != nil {
		do()
	}
}

// noteUnprocessed is called for each stream that the upstream did not process because it ended the
// connection. If it sent GOAWAY, the others are how many requests it takes on one connection, as
// servers limit them (nginx's keepalive_requests). Streams beyond that would all be sent in vain. A
// connection of which it took none shows no such limit: the upstream refused it, or restarts.
func (c *http2Conn) noteUnprocessed(goAway bool) {
	if goAway {
		c.goneAway.Store(true)
	}
	c.pool.mu.Lock() // so that the last of several streams has the last word
	defer c.pool.mu.Unlock()
	if n := c.uses.Load() - c.unprocessed.Add(1); c.goneAway.Load() {
		c.pool.usesLimit.Store(max(n, 0))
	}
}

// mayOpen reports whether c has room for a stream. Streams beyond usesLimit are opened one at a
// time. If the upstream processes one, it has no such limit: it ended an earlier connection for
// another reason, as when it restarted.
func (s *http2Pool) mayOpen(c *http2Conn) bool {
	if !c.isSettled.Load() || c.Err() != nil || c.Available() <= 0 || c.uploads.Stuck() {
		return false
	}
	limit := s.usesLimit.Load()
	if limit == 0 || c.uses.Load() < limit {
		return true
	}
	if c.InFlight() > 0 {
		return false
	}
	if c.uses.Load() > limit {
		s.usesLimit.CompareAndSwap(limit, 0)
	}
	return true
}

// settingsReader is a connection that calls seen when the upstream's first frame, its SETTINGS
// (RFC 9113 section 3.4), has been read and handled: whoever reads it asks for more.
type settingsReader struct {
	net.Conn
	seen   func()
	header [frameHeader]byte
	have   int // bytes of header
	left   int // bytes of the frame's payload that are still to come, once header is complete
	done   bool
}

// frameHeader is the length of a frame's header (RFC 9113 section 4.1). It begins with three bytes,
// the length of the payload.
const frameHeader = 9

// Read implements net.Conn. One goroutine reads.
func (r *settingsReader) Read(p []byte) (int, error) {
	if !r.done && r.have == frameHeader && r.left <= 0 {
		r.done = true
		r.seen()
	}
	n, err := r.Conn.Read(p)
	if !r.done {
		r.note(p[:n])
	}
	return n, err
}

func (r *settingsReader) note(p []byte) {
	if r.have < frameHeader {
		k := copy(r.header[r.have:], p)
		r.have += k
		p = p[k:]
		if r.have < frameHeader {
			return
		}
		r.left = int(binary.BigEndian.Uint32(r.header[:4]) >> 8)
	}
	r.left -= len(p)
}

// streamError has the form into which net/http converts its own stream error (errors.As).
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (e streamError) Error() string { return "a stream error" }

const refusedStream = 7 // RFC 9113 section 7

const goAwayPrefixes = 2

// unprocessedPrefixes are net/http's error texts for a request that was not yet on a
// connection when it ended, or beyond the last stream of its GOAWAY. net/http exports no
// value for them; tests provoke each to detect a change.
// The first goAwayPrefixes of them are of a GOAWAY.
var unprocessedPrefixes = []string{
	"http2: Transport received Server's graceful shutdown GOAWAY",
	"http2: Transport received GOAWAY from server ErrCode:", // of the first stream, when it is beyond the last
	"http2: client conn not usable",
	"http2: client conn could not be established",
}

// mapRoundTripError converts net/http's error to ours if the upstream certainly did not
// process the request.
func (c *http2Conn) mapRoundTripError(err error) error {
	var stream streamError
	if errors.As(err, &stream) && stream.Code == refusedStream {
		return ErrRefused
	}
	for i, words := range unprocessedPrefixes {
		if strings.HasPrefix(err.Error(), words) {
			c.noteUnprocessed(i < goAwayPrefixes)
			return ErrUnprocessed
		}
	}
	return err
}
