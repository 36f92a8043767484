package http2

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

// Options configure a Conn. They do not change.
type Options struct {
	Streams       int           // that a client may have at once; at least 1
	Window        int           // of one stream, in bytes: what a client may send of a body before it is read
	HeaderBytes   int           // of a request's headers, each counted with its 32 bytes (RFC 9113 section 6.5.2)
	HeaderTimeout time.Duration // for the preface, and for the rest of headers that have begun; 0: no limit
	IdleTimeout   time.Duration // without streams; 0: no limit
	PingAfter     time.Duration // of silence; a client that does not answer within as long is gone; 0: never
	WriteTimeout  time.Duration // for a client that reads nothing; 0: no limit
	Backlog       Backlog       // nil: none
	NotRead       error         // of reads of a body that the Backlog gave up

	// Workers have Serve serve each stream. Neither may be nil.
	Workers *Workers
	Serve   func(*Stream)
	// TooLarge is called for a request whose headers exceed HeaderBytes. The client gets 431.
	TooLarge func()
	// Fault is called with the fault of the client that ended the connection.
	Fault func(error)
	// Wrote is called with the number of bytes of a piece of a response. It must not block.
	Wrote func(n int)
	// Local and Remote are the addresses that streams have.
	Local, Remote net.Addr
}

// Backlog bounds what slow readers of bodies hold together. Wait counts a body whose reader is behind and
// that holds up to held bytes, until stop is called. end drops the body; it reports false if its reader has
// caught up.
type Backlog interface {
	Wait(held int64, end func() bool) (stop func())
}

// Conn is the HTTP/2 connection of a client. Run serves it; the other methods are safe for concurrent use.
type Conn struct {
	nc net.Conn
	o  *Options

	in      []byte // what was read and not yet used: in[r:w]; nil while nothing is
	r, w    int
	busy    bool // the last read was larger than a first one
	decoder *hpack.Decoder
	block   []byte // of a header block that has not ended
	opening frame  // HEADERS, while their block has not ended
	fields  fields
	ready   []*Stream // begun by what was read last; guarded by mu
	queued  []*Stream // wait for a worker; guarded by mu
	writeBy time.Time // write deadline; used by the goroutine that writes
	readBy  time.Time // read deadline now set

	headersSince time.Time // when headers began that are not complete; zero: none

	workers sync.WaitGroup // that serve streams

	mu           sync.Mutex // guards all below
	streams      map[uint32]*Stream
	last         uint32   // the highest stream that the client opened
	running      int      // workers, and streams in ready
	open         int      // streams that neither side has reset
	begun        bool     // our SETTINGS were sent
	err          error    // why the connection ended
	leaving      bool     // GOAWAY was sent
	lingering    bool     // it ends when the last stream has ended and all is written
	settled      bool     // the client's SETTINGS came
	window       int64    // what may be sent on all streams together
	streamWindow int64    // what may be sent on a new stream
	received     int      // of bodies, since the last WINDOW_UPDATE of the connection
	pinged       bool     // a PING of ours has no answer
	resets       []uint32 // streams that we reset lately; a ring
	nextReset    int      // in resets, once it is full
	out          output
	encoded      []byte    // the header block written last
	tableShrinks bool      // the client wants a smaller dynamic table: the next block says that we use none
	idleSince    time.Time // without streams since then; zero: there are some
}

// NewConn returns the connection nc, on which the preface is still unread.
func NewConn(nc net.Conn, o *Options) *Conn {
	c := &Conn{nc: nc, o: o, streams: map[uint32]*Stream{}, window: defaultWindow, streamWindow: defaultWindow, idleSince: time.Now()}
	c.decoder = hpack.NewDecoder(defaultHeaderTable, c.fields.add)
	c.decoder.SetMaxStringLength(2 * (o.HeaderBytes + frameSize)) // of a whole block with Huffman codes: what is too large gets 431
	return c
}

// Run serves the connection until it has ended, and returns when no stream is served any more. It closes
// nc.
func (c *Conn) Run() {
	err := c.read()
	c.sayGoodbye(err)
	c.mu.Lock()
	c.fail(err)
	c.mu.Unlock()
	_ = c.nc.Close()
	c.workers.Wait()
	buffer.Put(c.in)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.out.writing {
		c.releaseOut()
	}
}

// sayGoodbye tells the client which of its faults ended the connection.
func (c *Conn) sayGoodbye(err error) {
	var fault *connError
	if !errors.As(err, &fault) {
		return
	}
	if c.o.Fault != nil {
		c.o.Fault(err)
	}
	c.mu.Lock()
	c.control(32, func(dst []byte) []byte { return appendGoAway(dst, c.last, fault.code) })
	c.mu.Unlock()
	_ = c.nc.SetWriteDeadline(time.Now().Add(goodbyeWithin))
	for until := time.Now().Add(goodbyeWithin); c.isWriting() && time.Now().Before(until); {
		c.flush()
		time.Sleep(time.Millisecond)
	}
}

// goodbyeWithin is how long a client has to read why its connection ends.
const goodbyeWithin = time.Second

// isWriting reports whether something waits to be written.
func (c *Conn) isWriting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err == nil && (c.out.writing || len(c.out.pending) > 0)
}

func appendGoAway(dst []byte, last uint32, code Code) []byte {
	dst = appendFrame(dst, frameGoAway, 0, 0, 8)
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(dst, last), uint32(code))
}

// fail ends the connection because of err, once. It is called with mu held.
func (c *Conn) fail(err error) {
	if c.err != nil {
		return
	}
	if err == nil {
		err = io.EOF
	}
	c.err = err
	for _, s := range c.streams {
		s.end(errGone)
	}
	c.endReading()
}

// endReading makes the goroutine that reads return.
func (c *Conn) endReading() { _ = c.nc.SetReadDeadline(past) }

// begin sends our SETTINGS, which come before all else.
func (c *Conn) begin() {
	c.mu.Lock()
	c.control(64, c.appendSettings)
	c.begun = true
	leaves := c.leaving
	c.leaving = false
	c.mu.Unlock()
	if leaves {
		c.GoAway()
	}
	c.flushElsewhere()
}

// GoAway lets the streams finish and accepts no more; then the connection ends.
func (c *Conn) GoAway() {
	c.mu.Lock()
	if !c.leaving && c.begun {
		c.control(32, func(dst []byte) []byte { return appendGoAway(dst, maxStreamID, NoError) })
		// Streams that are on their way are still served, so their number is said only when they have come.
		// RFC 9113 section 6.8 asks for a second GOAWAY at least a round trip later.
		time.AfterFunc(goAwayAfter, c.endStreams)
	}
	c.leaving = true
	c.mu.Unlock()
	c.flushElsewhere()
}

// goAwayAfter is how long after the first GOAWAY streams are still accepted, for those that are on their
// way.
const goAwayAfter = 100 * time.Millisecond

// endStreams accepts no more streams.
func (c *Conn) endStreams() {
	c.mu.Lock()
	c.lingering = true
	c.control(32, func(dst []byte) []byte { return appendGoAway(dst, c.last, NoError) })
	c.mu.Unlock()
	c.flushElsewhere()
}

// isOver reports whether the connection was to end and has nothing more to do. It is called with mu held.
func (c *Conn) isOver() bool {
	return c.lingering && len(c.streams) == 0 && len(c.out.pending) == 0 && !c.out.writing
}

// Running returns how many streams are served.
func (c *Conn) Running() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// smallRead is how much an idle connection reads at first: a frame of a request with usual headers. A
// buffer is taken only when something has come.
const smallRead = 512

// read reads frames until the connection ends.
func (c *Conn) read() error {
	if err := c.readPreface(); err != nil {
		return err
	}
	c.begin()
	for {
		err := c.frames()
		c.startReady() // what came before a fault is served, too
		if err != nil {
			return err
		}
		c.flushElsewhere()
		if err := c.fill(); err != nil {
			return err
		}
	}
}

func (c *Conn) readPreface() error {
	if c.o.HeaderTimeout > 0 {
		_ = c.nc.SetReadDeadline(time.Now().Add(c.o.HeaderTimeout))
	}
	for c.w < len(Preface) {
		if err := c.readMore(); err != nil {
			return err
		}
		if n := min(c.w, len(Preface)); string(c.in[:n]) != Preface[:n] {
			return refuse(ProtocolError, "no HTTP/2 preface")
		}
	}
	c.r = len(Preface)
	return nil
}

func (c *Conn) appendSettings(dst []byte) []byte {
	dst = appendFrame(dst, frameSettings, 0, 0, 3*6)
	dst = appendSetting(dst, settingMaxConcurrentStreams, uint32(c.o.Streams))
	dst = appendSetting(dst, settingInitialWindowSize, uint32(c.o.Window))
	dst = appendSetting(dst, settingEnableConnect, 1)
	return appendWindowUpdate(dst, 0, connectionWindow-defaultWindow)
}

// connectionWindow is the window of the connection, in bytes. It is never used up: one upload that its
// upstream does not read would hold it for all others.
const connectionWindow = 1 << 30

// frames handles the whole frames that were read.
func (c *Conn) frames() error {
	for c.w-c.r >= frameHeader {
		f := parseFrame(c.in[c.r:])
		if f.length > frameSize {
			return refuse(FrameSizeError, "a frame larger than allowed")
		}
		if c.w-c.r < frameHeader+f.length {
			return nil
		}
		payload := c.in[c.r+frameHeader : c.r+frameHeader+f.length]
		c.r += frameHeader + f.length
		if err := c.handle(&f, payload); err != nil {
			return err
		}
		if c.block == nil {
			c.headersSince = noTime // if more have begun behind them, these are others
		}
	}
	return nil
}

// fill reads more. While nothing is buffered, there is no buffer either.
func (c *Conn) fill() error {
	switch {
	case c.r == c.w && c.busy:
		c.r, c.w = 0, 0
	case c.r == c.w:
		c.r, c.w = 0, 0
		buffer.Put(c.in)
		c.in = nil
	case c.r > 0:
		c.w = copy(c.in, c.in[c.r:c.w])
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
func (c *Conn) readMore() error {
	if c.in == nil {
		var first [smallRead]byte
		n, err := c.nc.Read(first[:])
		if n > 0 {
			c.busy = n == smallRead
			c.in = buffer.Get(buffer.Medium)
			c.w = copy(c.in, first[:n])
			return nil
		}
		return noProgress(err)
	}
	if c.w == len(c.in) { // a frame with its header is larger than the buffer
		c.in = buffer.Grow(c.in[:c.w], frameHeader)
		c.in = c.in[:cap(c.in)]
	}
	n, err := c.nc.Read(c.in[c.w:])
	if n > 0 {
		c.w += n
		c.busy = n > smallRead
		return nil
	}
	return noProgress(err)
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
func (c *Conn) setDeadline() wait {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	at, why := c.nextDeadline(now)
	// A deadline is seldom moved: a timer costs more than a look at the clock.
	if late := c.readBy.Sub(at); why != forPing || c.readBy.IsZero() || late < 0 || late > c.o.PingAfter/2 {
		if c.readBy = at; why == forPing {
			c.readBy = at.Add(c.o.PingAfter / 2)
		}
		_ = c.nc.SetReadDeadline(c.readBy)
	}
	return why
}

// nextDeadline is called with mu held.
func (c *Conn) nextDeadline(now time.Time) (at time.Time, why wait) {
	if c.err != nil || c.isOver() {
		return past, forFrames
	}
	if !c.inHeaders() {
		c.headersSince = noTime
	} else if c.headersSince.IsZero() {
		c.headersSince = now
	}
	if !c.headersSince.IsZero() && c.o.HeaderTimeout > 0 {
		return c.headersSince.Add(c.o.HeaderTimeout), forHeaders
	}
	if c.o.IdleTimeout > 0 && !c.idleSince.IsZero() {
		at, why = c.idleSince.Add(c.o.IdleTimeout), forIdleEnd
	}
	if ping := now.Add(c.o.PingAfter); c.o.PingAfter > 0 && (at.IsZero() || ping.Before(at)) {
		at, why = ping, forPing
	}
	return at, why
}

// inHeaders reports whether headers have begun that are not complete.
func (c *Conn) inHeaders() bool {
	if c.block != nil {
		return true
	}
	if c.w-c.r < frameHeader {
		return c.w > c.r
	}
	kind := parseFrame(c.in[c.r:]).kind
	return kind == frameHeaders || kind == frameContinuation
}

// timeUp handles the end of a wait. It returns an error if the connection has ended.
func (c *Conn) timeUp(why wait) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readBy = noTime // somebody may have moved it
	switch now := time.Now(); {
	case c.err != nil:
		return c.err
	case c.isOver():
		return io.EOF
	case why == forHeaders && now.Sub(c.headersSince) >= c.o.HeaderTimeout:
		return errSlow
	case why == forIdleEnd && !c.idleSince.IsZero() && now.Sub(c.idleSince) >= c.o.IdleTimeout:
		if c.leaving {
			return io.EOF
		}
		c.idleSince = now
		go c.GoAway() // a request may be on its way
	case why == forPing && c.pinged:
		return errVanished
	case why == forPing:
		c.pinged = true
		c.control(32, func(dst []byte) []byte {
			return append(appendFrame(dst, framePing, 0, 0, 8), pingData[:]...)
		})
		go c.flush()
	}
	return nil
}

var pingData = [8]byte{'r', 'e', 't', 'r', 'y', 'p', 'r', 'x'}

// Errors that end a connection without a word.
var (
	errSlow     = errors.New("the client did not finish its headers in time")
	errVanished = errors.New("the client answers no ping")
	errGone     = errors.New("the client ended the stream")
)

// startReady starts the workers of the streams that have begun. It is done after all that was read, since
// their first frames may follow.
func (c *Conn) startReady() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range c.ready {
		c.ready[i] = nil
		c.o.Workers.serve(s)
	}
	c.ready = c.ready[:0]
}

// start has a stream served, or queues it. Streams that the client has reset keep their workers until they
// end, so a client within its limit of streams may have to wait for them. It is called with mu held.
func (c *Conn) start(s *Stream) {
	if c.running >= c.o.Streams {
		s.queued = true
		c.queued = append(c.queued, s)
		return
	}
	c.running++
	c.workers.Add(1)
	c.ready = append(c.ready, s)
}

// startQueued starts the worker of the next stream that waits for one. It is called with mu held.
func (c *Conn) startQueued() {
	for len(c.queued) > 0 && c.running < c.o.Streams {
		s := c.queued[0]
		s.queued = false
		c.queued = slices.Delete(c.queued, 0, 1)
		c.running++
		c.workers.Add(1)
		c.o.Workers.serve(s)
	}
}

func (c *Conn) serve(s *Stream) {
	defer c.workers.Done()
	defer c.finished(s)
	c.o.Serve(s)
}
