package http2

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// UpstreamOptions configure an Upstream. They do not change.
type UpstreamOptions struct {
	Limits
	Secure bool // the scheme is https

	// TryWrite writes as much as there is room for without a wait. nil: a goroutine of its own writes.
	TryWrite func(p []byte) (int, error)
	// TryWritev is the same for several parts, which it cuts to what is left.
	TryWritev func(parts [][]byte) (int, error)
	// Silent reports whether the upstream's system acknowledges nothing, for some time. nil: unknown.
	Silent func() bool

	// Settled is called once, when the upstream's SETTINGS are in force, with the number of streams that
	// they allow. Leaving is called once, when the connection takes no more requests. Neither is called
	// with a lock held.
	Settled func(streams int)
	Leaving func()
	// WentAway is called when the upstream did not process all streams before its GOAWAY, with the number of
	// those that it took. It must not call methods of the Upstream.
	WentAway func(taken int)
	// Keep makes what UpstreamStream.Kept returns. The next request that uses the stream, of the same connection,
	// finds it there, too.
	Keep func(*UpstreamStream) any
	// Freed is called when a stream has given its place back. It must not call methods of the Upstream.
	Freed func()
}

// Errors of reading a response, if the upstream certainly did not process the request.
var (
	// ErrRefused: the upstream sent REFUSED_STREAM (RFC 9113 section 8.7).
	ErrRefused = errors.New("the upstream refused the stream")
	// ErrUnprocessed: the connection was shutting down (GOAWAY with a lower last stream, RFC 9113 section
	// 6.8) or had ended before the request was sent on it.
	ErrUnprocessed = errors.New("the upstream ended the connection before it processed the request")
)

// UnsaidStreams is how many streams a connection is expected to allow, until the upstream has said it. It is
// the least that servers should allow (RFC 9113 section 6.5.2).
const UnsaidStreams = 100

// Upstream is the HTTP/2 connection to an upstream. Run serves it; the other methods are safe for
// concurrent use.
type Upstream struct {
	link
	o UpstreamOptions

	lastRead atomic.Int64 // when something came last, by elapsed
	isSilent atomic.Bool  // what Silent reported
	asked    atomic.Int64 // when Silent was called last, by elapsed

	// All below is guarded by mu.
	next      uint32 // the number of the next stream
	said      int    // streams at once that the upstream allows; below 0: it has not said it
	most      int    // streams at once
	inFlight  int    // streams reserved or open
	goneAway  bool   // GOAWAY came
	lastTaken uint32 // with the number of the last stream that counts
	ending    bool   // nothing more is read
	toldReady bool   // Settled was called
	toldLeave bool   // Leaving was called
	unused    freeStreams[*UpstreamStream]
}

// NewUpstream returns the connection nc, on which nothing was sent.
func NewUpstream(nc net.Conn, o *UpstreamOptions) *Upstream {
	c := &Upstream{o: *o, next: 1, said: -1, most: 1}
	c.init(nc, c, &setup{peer: o.Limits, tryWrite: o.TryWrite, writev: o.TryWritev, isUpstream: true})
	c.mu.Lock()
	c.control(128, c.appendPreface)
	c.mu.Unlock()
	return c
}

// appendPreface appends the first bytes that a client sends (RFC 9113 section 3.4).
func (c *Upstream) appendPreface(dst []byte) []byte {
	dst = append(dst, Preface...)
	dst = appendFrame(dst, frameSettings, 0, 0, 3*6)
	dst = appendSetting(dst, settingEnablePush, 0)
	dst = appendSetting(dst, settingInitialWindowSize, uint32(c.o.Window))
	dst = appendSetting(dst, settingMaxHeaderListSize, uint32(c.o.HeaderBytes))
	return appendWindowUpdate(dst, 0, connectionWindow-defaultWindow)
}

// Run serves the connection until it has ended, and closes nc.
func (c *Upstream) Run() {
	c.flushElsewhere()
	err := c.read()
	c.endStreams()
	c.sayGoodbye(err, 0, nil)
	c.mu.Lock()
	c.fail(err)
	c.mu.Unlock()
	_ = c.nc.Close()
	c.in.Put()
	c.tell()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.out.writing {
		c.releaseOut()
	}
}

func (c *Upstream) read() error {
	for {
		if err := c.fill(); err != nil {
			return err
		}
		c.lastRead.Store(c.elapsed())
		c.isSilent.Store(false)
		if err := c.frames(); err != nil {
			return err
		}
		c.flushElsewhere()
		c.tell()
		if c.keepPace() {
			return refuse(EnhanceYourCalm, "the upstream sends frames that carry nothing")
		}
	}
}

// endStreams ends all streams, since nothing more is read.
func (c *Upstream) endStreams() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lingering, c.ending = true, true
	for _, s := range c.streams {
		s.self.end(errGone)
	}
}

// tell calls the functions of the owner that are due.
func (c *Upstream) tell() {
	c.mu.Lock()
	ready := c.settled && !c.toldReady
	leaves := (c.lingering || c.err != nil) && !c.toldLeave
	c.toldReady, c.toldLeave = c.toldReady || ready, c.toldLeave || leaves
	streams := c.most
	c.mu.Unlock()
	if ready && c.o.Settled != nil {
		c.o.Settled(streams)
	}
	if leaves && c.o.Leaving != nil {
		c.o.Leaving()
	}
}

// AssumeSettings allows as many streams as an upstream should, if its SETTINGS have not come yet.
func (c *Upstream) AssumeSettings() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.settled {
		c.most = UnsaidStreams
	}
}

// Open reserves a stream. It returns nil if the connection takes none now.
func (c *Upstream) Open() *UpstreamStream {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hasRoom() {
		return nil
	}
	c.inFlight++
	c.idleSince = noTime
	s := c.newStream()
	s.open(0)
	s.early = true
	return s
}

// HasRoom reports whether Open would return a stream.
func (c *Upstream) HasRoom() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hasRoom()
}

// hasRoom is HasRoom with mu held.
func (c *Upstream) hasRoom() bool {
	return c.err == nil && !c.lingering && c.inFlight < c.most && c.next <= maxStreamID-2*uint32(c.inFlight) && !c.isStuck() && !c.silent()
}

// stuckAfter is how long an upstream may accept nothing more before its connection takes no more streams:
// longer than a round trip.
const stuckAfter = 100 * time.Millisecond

// isStuck reports whether nothing more could be sent for so long that other requests need another
// connection: bodies that the upstream does not read hold its window, or it reads nothing at all. It is
// called with mu held.
func (c *Upstream) isStuck() bool {
	if c.window > 0 && !c.out.current.Owns() {
		return false
	}
	now := time.Now()
	return c.window <= 0 && now.Sub(c.usedUpAt) >= stuckAfter || c.out.current.Owns() && now.Sub(c.out.since) >= stuckAfter
}

// An upstream that has streams and sends nothing for silentAfter may be gone: its system is asked then, and
// again after askAgain.
const (
	silentAfter = 500 * time.Millisecond
	askAgain    = 100 * time.Millisecond
)

// elapsed returns the nanoseconds since the connection began.
func (c *Upstream) elapsed() int64 { return int64(time.Since(c.began)) }

// silent reports whether the upstream seems to be gone. It is called with mu held.
func (c *Upstream) silent() bool {
	if c.o.Silent == nil || c.inFlight == 0 {
		return false
	}
	now := c.elapsed()
	if now-c.lastRead.Load() < int64(silentAfter) {
		return false
	}
	if now-c.asked.Load() >= int64(askAgain) {
		c.asked.Store(now)
		c.isSilent.Store(c.o.Silent())
	}
	return c.isSilent.Load()
}

// InFlight returns how many streams are reserved or open.
func (c *Upstream) InFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inFlight
}

// IsLeaving reports whether the connection takes no more requests.
func (c *Upstream) IsLeaving() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil || c.lingering
}

// Retire lets the streams finish and opens no more; then the connection ends.
func (c *Upstream) Retire() {
	c.mu.Lock()
	c.retire()
	c.mu.Unlock()
}

// retire is Retire with mu held.
func (c *Upstream) retire() {
	c.lingering = true
	if c.isOver() {
		c.endReading()
	}
}

// mayEnd implements side.
func (c *Upstream) mayEnd() bool { return c.inFlight == 0 }

// idle implements side.
func (c *Upstream) idle(time.Time) error { return io.EOF }

// settingsCame implements side.
func (c *Upstream) settingsCame() {
	if c.most = c.said; c.said < 0 {
		c.most = unlimitedStreams
	}
}

// unlimitedStreams is how many streams a connection has whose upstream does not limit them.
const unlimitedStreams = 1000
