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
func (u *Upstream) appendPreface(dst []byte) []byte {
	dst = append(dst, Preface...)
	dst = appendFrame(dst, frameSettings, 0, 0, 3*6)
	dst = appendSetting(dst, settingEnablePush, 0)
	dst = appendSetting(dst, settingInitialWindowSize, uint32(u.o.Window))
	dst = appendSetting(dst, settingMaxHeaderListSize, uint32(u.o.HeaderBytes))
	return appendWindowUpdate(dst, 0, connectionWindow-defaultWindow)
}

// Run serves the connection until it has ended, and closes nc.
func (u *Upstream) Run() {
	u.flushElsewhere()
	err := u.read()
	u.endStreams()
	u.sayGoodbye(err, 0, nil)
	u.mu.Lock()
	u.fail(err)
	u.mu.Unlock()
	_ = u.nc.Close()
	u.in.Put()
	u.tell()
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.out.writing {
		u.releaseOut()
	}
}

func (u *Upstream) read() error {
	for {
		if err := u.fill(); err != nil {
			return err
		}
		u.lastRead.Store(u.elapsed())
		u.isSilent.Store(false)
		if err := u.frames(); err != nil {
			return err
		}
		u.flushElsewhere()
		u.tell()
		if u.keepPace() {
			return refuse(EnhanceYourCalm, "the upstream sends frames that carry nothing")
		}
	}
}

// endStreams ends all streams, since nothing more is read.
func (u *Upstream) endStreams() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.lingering, u.ending = true, true
	for _, s := range u.streams {
		s.self.end(errGone)
	}
}

// tell calls the functions of the owner that are due.
func (u *Upstream) tell() {
	u.mu.Lock()
	ready := u.settled && !u.toldReady
	leaves := (u.lingering || u.err != nil) && !u.toldLeave
	u.toldReady, u.toldLeave = u.toldReady || ready, u.toldLeave || leaves
	streams := u.most
	u.mu.Unlock()
	if ready && u.o.Settled != nil {
		u.o.Settled(streams)
	}
	if leaves && u.o.Leaving != nil {
		u.o.Leaving()
	}
}

// AssumeSettings allows as many streams as an upstream should, if its SETTINGS have not come yet.
func (u *Upstream) AssumeSettings() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.settled {
		u.most = UnsaidStreams
	}
}

// Open reserves a stream. It returns nil if the connection takes none now.
func (u *Upstream) Open() *UpstreamStream {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.hasRoom() {
		return nil
	}
	u.inFlight++
	u.idleSince = noTime
	s := u.newStream()
	s.open(0)
	s.early = true
	return s
}

// HasRoom reports whether Open would return a stream.
func (u *Upstream) HasRoom() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.hasRoom()
}

// hasRoom is HasRoom with mu held.
func (u *Upstream) hasRoom() bool {
	return u.err == nil && !u.lingering && u.inFlight < u.most && u.next <= maxStreamID-2*uint32(u.inFlight) && !u.isStuck() && !u.silent()
}

// stuckAfter is how long an upstream may accept nothing more before its connection takes no more streams:
// longer than a round trip.
const stuckAfter = 100 * time.Millisecond

// isStuck reports whether nothing more could be sent for so long that other requests need another
// connection: bodies that the upstream does not read hold its window, or it reads nothing at all. It is
// called with mu held.
func (u *Upstream) isStuck() bool {
	if u.window > 0 && !u.out.current.Owns() {
		return false
	}
	now := time.Now()
	return u.window <= 0 && now.Sub(u.usedUpAt) >= stuckAfter || u.out.current.Owns() && now.Sub(u.out.since) >= stuckAfter
}

// An upstream that has streams and sends nothing for silentAfter may be gone: its system is asked then, and
// again after askAgain.
const (
	silentAfter = 500 * time.Millisecond
	askAgain    = 100 * time.Millisecond
)

// elapsed returns the nanoseconds since the connection began.
func (u *Upstream) elapsed() int64 { return int64(time.Since(u.began)) }

// silent reports whether the upstream seems to be gone. It is called with mu held.
func (u *Upstream) silent() bool {
	if u.o.Silent == nil || u.inFlight == 0 {
		return false
	}
	now := u.elapsed()
	if now-u.lastRead.Load() < int64(silentAfter) {
		return false
	}
	if now-u.asked.Load() >= int64(askAgain) {
		u.asked.Store(now)
		u.isSilent.Store(u.o.Silent())
	}
	return u.isSilent.Load()
}

// InFlight returns how many streams are reserved or open.
func (u *Upstream) InFlight() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.inFlight
}

// IsLeaving reports whether the connection takes no more requests.
func (u *Upstream) IsLeaving() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err != nil || u.lingering
}

// Retire lets the streams finish and opens no more; then the connection ends.
func (u *Upstream) Retire() {
	u.mu.Lock()
	u.retire()
	u.mu.Unlock()
}

// retire is Retire with mu held.
func (u *Upstream) retire() {
	u.lingering = true
	if u.isOver() {
		u.endReading()
	}
}

// mayEnd implements side.
func (u *Upstream) mayEnd() bool { return u.inFlight == 0 }

// idle implements side.
func (u *Upstream) idle(time.Time) error { return io.EOF }

// settingsCame implements side.
func (u *Upstream) settingsCame() {
	if u.most = u.said; u.said < 0 {
		u.most = unlimitedStreams
	}
}

// unlimitedStreams is how many streams a connection has whose upstream does not limit them.
const unlimitedStreams = 1000
