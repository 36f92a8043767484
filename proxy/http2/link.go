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

func (l *link) init(nc net.Conn, of side, with *setup) {
	l.nc, l.side, l.setup, l.streams = nc, of, *with, map[uint32]*flow{}
	l.began = time.Now()
	l.window, l.streamWindow, l.idleSince = defaultWindow, defaultWindow, l.began
	l.pace = floodguard.NewPace()
	l.decoder = hpack.NewDecoder(defaultHeaderTable, l.fields.add)
	l.decoder.SetMaxStringLength(2 * (l.peer.HeaderBytes + FrameSize)) // of a whole block with Huffman codes: what is too large is told from its sum
}

// now returns the time. It reads one clock of the system, and time.Now two.
func (l *link) now() time.Time { return l.began.Add(time.Since(l.began)) }

// fail ends the connection because of err, once. It is called with mu held.
func (l *link) fail(err error) {
	if l.err != nil {
		return
	}
	if err == nil {
		err = io.EOF
	}
	l.err = err
	for _, s := range l.streams {
		s.self.end(errGone)
	}
	if l.alarm.timer != nil {
		l.alarm.timer.Stop()
	}
	l.endReading()
}

// sayGoodbye tells the peer which of its faults ended the connection, and after which of its streams.
func (l *link) sayGoodbye(err error, last uint32, report func(error)) {
	var fault *connError
	if !errors.As(err, &fault) {
		return
	}
	if report != nil {
		report(err)
	}
	l.mu.Lock()
	l.control(32, func(dst []byte) []byte { return appendGoAway(dst, last, fault.code) })
	l.leavesSoon = true
	l.mu.Unlock()
	_ = l.nc.SetWriteDeadline(time.Now().Add(goodbyeWithin))
	for until := time.Now().Add(goodbyeWithin); l.isWriting() && time.Now().Before(until); {
		l.flush()
		time.Sleep(time.Millisecond)
	}
}

// goodbyeWithin is how long a peer has to read why its connection ends.
const goodbyeWithin = time.Second

// isWriting reports whether something waits to be written.
func (l *link) isWriting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err == nil && (l.out.writing || l.out.waits() > 0)
}

// endReading makes the goroutine that reads return.
func (l *link) endReading() { _ = l.nc.SetReadDeadline(past) }

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// smallRead is how much an idle connection reads at first: a frame of a request with usual headers. A
// buffer is taken only when something has come.
const smallRead = 512

// connectionWindow is the window of the connection, in bytes. It is never used up: one body that nobody
// reads would hold it for all others.
const connectionWindow = 1 << 30

// frames handles the whole frames that were read.
func (l *link) frames() error {
	got := l.got()
	for l.w-l.r >= frameHeader {
		l.current = parseFrame(got[l.r:])
		f := &l.current
		if f.length > FrameSize {
			return refuse(FrameSizeError, "a frame larger than allowed")
		}
		if l.w-l.r < frameHeader+f.length {
			return nil
		}
		payload := got[l.r+frameHeader : l.r+frameHeader+f.length]
		l.r += frameHeader + f.length
		if err := l.handle(f, payload); err != nil {
			return err
		}
		if l.block == nil {
			l.headersSince = noTime // if more have begun behind them, these are others
		}
	}
	return nil
}

// fill reads more. While nothing is buffered, there is no buffer either.
func (l *link) fill() error {
	if l.yields { // without it, PUTs of 16 MiB cost twice the CPU: bodies pile up to their windows
		l.yields = false
		runtime.Gosched()
	}
	switch {
	case l.r == l.w && l.busy:
		l.r, l.w = 0, 0
	case l.r == l.w:
		l.r, l.w = 0, 0
		l.in.Put()
	case !l.in.Owns(): // it was not to be read in pieces
		l.in = buffer.Get(buffer.Medium)
		l.r, l.w = 0, copy(l.in.Bytes(), l.first[l.r:l.w])
	case l.r > 0:
		l.w = copy(l.in.Bytes(), l.in.Bytes()[l.r:l.w])
		l.r = 0
	}
	for {
		why := l.setDeadline()
		err := l.readMore()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if err := l.timeUp(why); err != nil {
			return err
		}
	}
}

// readMore reads once behind what is there.
func (l *link) readMore() error {
	if !l.in.Owns() {
		n, err := l.nc.Read(l.first[l.w:]) // of a preface in pieces, some is there
		if n > 0 {
			if l.w += n; l.w == smallRead {
				l.in = buffer.Get(buffer.Medium)
				copy(l.in.Bytes(), l.first[:])
			}
			l.busy = l.in.Owns()
			return nil
		}
		return noProgress(err)
	}
	if l.w == l.in.Len() { // a frame with its header is larger than the buffer
		l.in.Grow(frameHeader)
		l.in.Expand()
	}
	n, err := l.nc.Read(l.in.Bytes()[l.w:])
	if n > 0 {
		l.w += n
		l.busy = n > smallRead
		return nil
	}
	return noProgress(err)
}

// got returns what has what was read.
func (l *link) got() []byte {
	if l.in.Owns() {
		return l.in.Bytes()
	}
	return l.first[:]
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
func (l *link) setDeadline() wait {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	at, why := l.nextDeadline(now)
	// A deadline is seldom moved: a timer costs more than a look at the clock.
	if late := l.readBy.Sub(at); why != forPing || l.readBy.IsZero() || late < 0 || late > l.peer.PingAfter/2 {
		if l.readBy = at; why == forPing {
			l.readBy = at.Add(l.peer.PingAfter / 2)
		}
		_ = l.nc.SetReadDeadline(l.readBy)
	}
	return why
}

// nextDeadline is called with mu held.
func (l *link) nextDeadline(now time.Time) (at time.Time, why wait) {
	if l.err != nil || l.isOver() {
		return past, forFrames
	}
	if l.unwritable != nil {
		return l.unwritableAt.Add(readAfterwards), forFrames
	}
	if !l.inHeaders() {
		l.headersSince = noTime
	} else if l.headersSince.IsZero() {
		l.headersSince = now
	}
	if !l.headersSince.IsZero() && l.peer.HeaderTimeout > 0 {
		return l.headersSince.Add(l.peer.HeaderTimeout), forHeaders
	}
	if l.peer.IdleTimeout > 0 && !l.idleSince.IsZero() {
		at, why = l.idleSince.Add(l.peer.IdleTimeout), forIdleEnd
	}
	after := l.peer.PingAfter
	if l.quiet && !l.pinged && l.isUpstream {
		after = pingAgain
	}
	if ping := now.Add(after); l.peer.PingAfter > 0 && (at.IsZero() || ping.Before(at)) {
		at, why = ping, forPing
	}
	return at, why
}

// inHeaders reports whether headers have begun that are not complete.
func (l *link) inHeaders() bool {
	if l.block != nil {
		return true
	}
	if l.w-l.r < frameHeader {
		return l.w > l.r
	}
	kind := parseFrame(l.got()[l.r:]).kind
	return kind == FrameHeaders || kind == frameContinuation
}

// timeUp handles the end of a wait. It returns an error if the connection has ended.
func (l *link) timeUp(why wait) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readBy = noTime // somebody may have moved it
	switch now := time.Now(); {
	case l.err != nil:
		return l.err
	case l.isOver():
		return io.EOF
	case l.unwritable != nil:
		return l.unwritable
	case why == forHeaders && now.Sub(l.headersSince) >= l.peer.HeaderTimeout:
		return errSlow
	case why == forIdleEnd && !l.idleSince.IsZero() && now.Sub(l.idleSince) >= l.peer.IdleTimeout:
		return l.side.idle(now)
	case why == forPing && l.pinged:
		return errVanished
	case why == forPing && l.isUpstream && len(l.streams) == 0:
	case why == forPing:
		l.pinged, l.quiet = true, true
		l.control(32, func(dst []byte) []byte {
			return append(appendFrame(dst, framePing, 0, 0, 8), pingData[:]...)
		})
		go l.flush()
	}
	return nil
}

// pingAgain is how long after a PING an upstream that sends nothing else gets another one. A gRPC server takes
// more of them for an attack.
const pingAgain = 5 * time.Minute

// isOver reports whether the connection was to end and has nothing more to do. It is called with mu held.
func (l *link) isOver() bool {
	return l.lingering && len(l.streams) == 0 && l.out.waits() == 0 && !l.out.writing && l.side.mayEnd()
}

// emptied notes that the last stream has ended. It is called with mu held.
func (l *link) emptied() {
	l.idleSince = l.now()
	if l.isOver() {
		l.endReading()
	}
}

var pingData = [8]byte{'r', 'e', 't', 'r', 'y', 'p', 'r', 'x'}

// Errors that end a connection without a word.
var (
	errSlow     = errors.New("the peer did not finish its headers in time")
	errVanished = errors.New("the peer answers no ping")
	errGone     = errors.New("the peer ended the stream")
)
