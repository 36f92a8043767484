package http2

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/floodguard"
)

// link is our end of an HTTP/2 connection, to a client or to an upstream: the frames that are read, the
// streams with their windows, and what waits to be written.
type link struct {
	nc    net.Conn
	side  side
	began time.Time
	setup

	first   [smallRead]byte // of what an idle connection reads
	in      buffer.Handle   // of what was read: got()[r:w] is not yet used; none while nothing is, or first has it
	r, w    int
	busy    bool // the last read was larger than a first one
	yields  bool // a reader of a body has all that it can take; used by the goroutine that reads
	decoder *hpack.Decoder
	block   []byte // of a header block that has not ended
	current frame  // is being handled
	opening frame  // HEADERS, while their block has not ended
	fields  fields
	writeBy time.Time // write deadline; used by the goroutine that writes
	readBy  time.Time // read deadline now set

	headersSince time.Time // when headers began that are not complete; zero: none
	idleFrames   int       // that carried nothing, since pace last took them
	resetFrames  int       // of these: RST_STREAM of a client
	pace         floodguard.Pace
	quiet        bool // nothing but the answer to a PING came since that was sent

	mu           sync.Mutex // guards all below
	streams      map[uint32]*flow
	err          error // why the connection ended
	unwritable   error // why nothing more can be written to an upstream from which there may be more to read
	unwritableAt time.Time
	lingering    bool      // it ends when the last stream has ended and all is written
	leavesSoon   bool      // the peer made a fault: writes end at the deadline that is set
	settled      bool      // the peer's SETTINGS came
	window       int64     // what may be sent on all streams together
	usedUpAt     time.Time // when window was used up
	streamWindow int64     // what may be sent on a new stream
	moved        uint64    // bytes of bodies, in both directions
	received     int       // of bodies, since the last WINDOW_UPDATE of the connection
	earned       int       // frames that carry nothing, by what was sent since pace last took it
	provoked     int       // streams that the peer made us reset since then
	pinged       bool      // a PING of ours has no answer
	out          output
	encoded      []byte    // the header block written last
	tableShrinks bool      // the peer wants a smaller dynamic table: the next block says that we use none
	idleSince    time.Time // without streams since then; zero: there are some
	alarm        alarm
}

// Limits are what a peer, a client or an upstream, may do.
type Limits struct {
	ReadAhead
	HeaderBytes   int           // of a header section, each header counted with its 32 bytes (RFC 9113 section 6.5.2)
	HeaderTimeout time.Duration // for the preface of a client, and for the rest of headers that have begun; 0: no limit
	IdleTimeout   time.Duration // without streams; 0: no limit
	PingAfter     time.Duration // of silence, of an upstream while there are streams; a peer that does not answer within as long is gone; 0: never
	WriteTimeout  time.Duration // for a peer that reads nothing; 0: no limit
}

// setup is what a link is made with. It does not change.
type setup struct {
	peer       Limits
	slowed     func() // called when the peer is first slowed down; nil: not at all
	isUpstream bool
	tryWrite   func(p []byte) (int, error)       // writes what there is room for; nil: not possible
	writev     func(parts [][]byte) (int, error) // writes parts, of an upstream what there is room for, and cuts them; nil: not possible
}

// side is what differs between a client's connection and an upstream's. All methods but headersCame are
// called with mu held.
type side interface {
	// headersCame takes the fields of a header block.
	headersCame() error
	// closedStream answers a frame of a stream that has ended or never was.
	closedStream(f *frame) error
	// ofClosed reports whether DATA of s, which has ended, is a fault of the peer.
	ofClosed(s *flow) bool
	rstStream(f *frame, code Code) error
	goAway(p []byte) error
	setting(id uint16, value uint32) error
	settingsCame()
	// sendReset tells the peer that a stream has ended.
	sendReset(id uint32, code Code)
	// idle is called after Limits.IdleTimeout without streams. An error ends the connection.
	idle(now time.Time) error
	// unsent is called when a write has failed after that many bytes.
	unsent(written int64)
	// mayEnd reports whether the connection has nothing more to do.
	mayEnd() bool
}

func (c *link) init(nc net.Conn, of side, with *setup) {
	c.nc, c.side, c.setup, c.streams = nc, of, *with, map[uint32]*flow{}
	c.began = time.Now()
	c.window, c.streamWindow, c.idleSince = defaultWindow, defaultWindow, c.began
	c.pace = floodguard.NewPace()
	c.decoder = hpack.NewDecoder(defaultHeaderTable, c.fields.add)
	c.decoder.SetMaxStringLength(2 * (c.peer.HeaderBytes + FrameSize)) // of a whole block with Huffman codes: what is too large is told from its sum
}

// now returns the time. It reads one clock of the system, and time.Now two.
func (c *link) now() time.Time { return c.began.Add(time.Since(c.began)) }

// fail ends the connection because of err, once. It is called with mu held.
func (c *link) fail(err error) {
	if c.err != nil {
		return
	}
	if err == nil {
		err = io.EOF
	}
	c.err = err
	for _, s := range c.streams {
		s.self.end(errGone)
	}
	if c.alarm.timer != nil {
		c.alarm.timer.Stop()
	}
	c.endReading()
}

// sayGoodbye tells the peer which of its faults ended the connection, and after which of its streams.
func (c *link) sayGoodbye(err error, last uint32, report func(error)) {
	var fault *connError
	if !errors.As(err, &fault) {
		return
	}
	if report != nil {
		report(err)
	}
	c.mu.Lock()
	c.control(32, func(dst []byte) []byte { return appendGoAway(dst, last, fault.code) })
	c.leavesSoon = true
	c.mu.Unlock()
	_ = c.nc.SetWriteDeadline(time.Now().Add(goodbyeWithin))
	for until := time.Now().Add(goodbyeWithin); c.isWriting() && time.Now().Before(until); {
		c.flush()
		time.Sleep(time.Millisecond)
	}
}

// goodbyeWithin is how long a peer has to read why its connection ends.
const goodbyeWithin = time.Second

// isWriting reports whether something waits to be written.
func (c *link) isWriting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err == nil && (c.out.writing || c.out.waits() > 0)
}

// endReading makes the goroutine that reads return.
func (c *link) endReading() { _ = c.nc.SetReadDeadline(past) }

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// smallRead is how much an idle connection reads at first: a frame of a request with usual headers. A
// buffer is taken only when something has come.
const smallRead = 512

// connectionWindow is the window of the connection, in bytes. It is never used up: one body that nobody
// reads would hold it for all others.
const connectionWindow = 1 << 30

// frames handles the whole frames that were read.
func (c *link) frames() error {
	got := c.got()
	for c.w-c.r >= frameHeader {
		c.current = parseFrame(got[c.r:])
		f := &c.current
		if f.length > FrameSize {
			return refuse(FrameSizeError, "a frame larger than allowed")
		}
		if c.w-c.r < frameHeader+f.length {
			return nil
		}
		payload := got[c.r+frameHeader : c.r+frameHeader+f.length]
		c.r += frameHeader + f.length
		if err := c.handle(f, payload); err != nil {
			return err
		}
		if c.block == nil {
			c.headersSince = noTime // if more have begun behind them, these are others
		}
	}
	return nil
}

// fill reads more. While nothing is buffered, there is no buffer either.
func (c *link) fill() error {
	if c.yields { // without it, PUTs of 16 MiB cost twice the CPU: bodies pile up to their windows
		c.yields = false
		runtime.Gosched()
	}
	switch {
	case c.r == c.w && c.busy:
		c.r, c.w = 0, 0
	case c.r == c.w:
		c.r, c.w = 0, 0
		c.in.Put()
	case !c.in.Owns(): // it was not to be read in pieces
		c.in = buffer.Get(buffer.Medium)
		c.r, c.w = 0, copy(c.in.Bytes(), c.first[c.r:c.w])
	case c.r > 0:
		c.w = copy(c.in.Bytes(), c.in.Bytes()[c.r:c.w])
		c.r = 0
	}
	for {
		why := c.setDeadline()
		err := c.readMore()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if err := c.timeUp(why); err != nil {
			return err
		}
	}
}

// readMore reads once behind what is there.
func (c *link) readMore() error {
	if !c.in.Owns() {
		n, err := c.nc.Read(c.first[c.w:]) // of a preface in pieces, some is there
		if n > 0 {
			if c.w += n; c.w == smallRead {
				c.in = buffer.Get(buffer.Medium)
				copy(c.in.Bytes(), c.first[:])
			}
			c.busy = c.in.Owns()
			return nil
		}
		return noProgress(err)
	}
	if c.w == c.in.Len() { // a frame with its header is larger than the buffer
		c.in.Grow(frameHeader)
		c.in.Expand()
	}
	n, err := c.nc.Read(c.in.Bytes()[c.w:])
	if n > 0 {
		c.w += n
		c.busy = n > smallRead
		return nil
	}
	return noProgress(err)
}

// got returns what has what was read.
func (c *link) got() []byte {
	if c.in.Owns() {
		return c.in.Bytes()
	}
	return c.first[:]
}

func noProgress(err error) error {
	if err == nil {
		return io.ErrNoProgress
	}
	return err
}

// wait is what the goroutine that reads waits for, besides frames.
type wait uint8

const (
	forFrames wait = iota
	forHeaders
	forIdleEnd
	forPing
)

// setDeadline sets when the next read has to have come, and returns what for.
func (c *link) setDeadline() wait {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	at, why := c.nextDeadline(now)
	// A deadline is seldom moved: a timer costs more than a look at the clock.
	if late := c.readBy.Sub(at); why != forPing || c.readBy.IsZero() || late < 0 || late > c.peer.PingAfter/2 {
		if c.readBy = at; why == forPing {
			c.readBy = at.Add(c.peer.PingAfter / 2)
		}
		_ = c.nc.SetReadDeadline(c.readBy)
	}
	return why
}

// nextDeadline is called with mu held.
func (c *link) nextDeadline(now time.Time) (at time.Time, why wait) {
	if c.err != nil || c.isOver() {
		return past, forFrames
	}
	if c.unwritable != nil {
		return c.unwritableAt.Add(readAfterwards), forFrames
	}
	if !c.inHeaders() {
		c.headersSince = noTime
	} else if c.headersSince.IsZero() {
		c.headersSince = now
	}
	if !c.headersSince.IsZero() && c.peer.HeaderTimeout > 0 {
		return c.headersSince.Add(c.peer.HeaderTimeout), forHeaders
	}
	if c.peer.IdleTimeout > 0 && !c.idleSince.IsZero() {
		at, why = c.idleSince.Add(c.peer.IdleTimeout), forIdleEnd
	}
	after := c.peer.PingAfter
	if c.quiet && !c.pinged && c.isUpstream {
		after = pingAgain
	}
	if ping := now.Add(after); c.peer.PingAfter > 0 && (at.IsZero() || ping.Before(at)) {
		at, why = ping, forPing
	}
	return at, why
}

// inHeaders reports whether headers have begun that are not complete.
func (c *link) inHeaders() bool {
	if c.block != nil {
		return true
	}
	if c.w-c.r < frameHeader {
		return c.w > c.r
	}
	kind := parseFrame(c.got()[c.r:]).kind
	return kind == FrameHeaders || kind == frameContinuation
}

// timeUp handles the end of a wait. It returns an error if the connection has ended.
func (c *link) timeUp(why wait) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readBy = noTime // somebody may have moved it
	switch now := time.Now(); {
	case c.err != nil:
		return c.err
	case c.isOver():
		return io.EOF
	case c.unwritable != nil:
		return c.unwritable
	case why == forHeaders && now.Sub(c.headersSince) >= c.peer.HeaderTimeout:
		return errSlow
	case why == forIdleEnd && !c.idleSince.IsZero() && now.Sub(c.idleSince) >= c.peer.IdleTimeout:
		return c.side.idle(now)
	case why == forPing && c.pinged:
		return errVanished
	case why == forPing && c.isUpstream && len(c.streams) == 0:
	case why == forPing:
		c.pinged, c.quiet = true, true
		c.control(32, func(dst []byte) []byte {
			return append(appendFrame(dst, framePing, 0, 0, 8), pingData[:]...)
		})
		go c.flush()
	}
	return nil
}

// pingAgain is how long after a PING an upstream that sends nothing else gets another one. A gRPC server takes
// more of them for an attack.
const pingAgain = 5 * time.Minute

// isOver reports whether the connection was to end and has nothing more to do. It is called with mu held.
func (c *link) isOver() bool {
	return c.lingering && len(c.streams) == 0 && c.out.waits() == 0 && !c.out.writing && c.side.mayEnd()
}

// emptied notes that the last stream has ended. It is called with mu held.
func (c *link) emptied() {
	c.idleSince = c.now()
	if c.isOver() {
		c.endReading()
	}
}

var pingData = [8]byte{'r', 'e', 't', 'r', 'y', 'p', 'r', 'x'}

// Errors that end a connection without a word.
var (
	errSlow     = errors.New("the peer did not finish its headers in time")
	errVanished = errors.New("the peer answers no ping")
	errGone     = errors.New("the peer ended the stream")
)
