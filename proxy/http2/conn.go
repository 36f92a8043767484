package http2

import (
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// Options configure a Conn. They do not change.
type Options struct {
	Limits
	Streams int // that a client may have at once; at least 1

	// Workers have Serve serve each stream. Neither may be nil.
	Workers *Workers
	Serve   func(*Stream)
	// Keep makes what Serve finds in Stream.Kept. The next request that uses the stream, of the same
	// connection, finds it there, too.
	Keep func(*Stream) any
	// TooLarge is called for a request whose headers exceed HeaderBytes. The client gets 431 with the
	// headers and the body that it returns.
	TooLarge func() (headers []http1.Header, body []byte)
	// Fault is called with the fault of the client that ended the connection.
	Fault func(error)
	// Slowed is called when the client has sent so many frames that carry nothing that it is read more slowly
	// from then on. nil: nobody is told.
	Slowed func()
	// Writev writes parts by one system call, and cuts them to what is left. nil: not possible.
	Writev func(parts [][]byte) (int, error)
	// Local and Remote are the addresses that streams have.
	Local, Remote net.Addr
}

// Conn is the HTTP/2 connection of a client. Run serves it; the other methods are safe for concurrent use.
type Conn struct {
	link
	o *Options

	workers sync.WaitGroup // that serve streams

	// All below is guarded by mu.
	ready     []*Stream // begun by what was read last
	queued    []*Stream // wait for a worker
	free      freeStreams[*Stream]
	last      uint32   // the highest stream that the client opened
	running   int      // workers, and streams in ready
	open      int      // streams that the client's limit counts
	begun     bool     // our SETTINGS were sent
	leaving   bool     // GOAWAY was sent
	resets    []uint32 // streams that we reset lately; a ring
	nextReset int      // in resets, once it is full
}

// NewConn returns the connection nc, on which the preface is still unread.
func NewConn(nc net.Conn, o *Options) *Conn {
	c := &Conn{o: o}
	c.init(nc, c, &setup{peer: o.Limits, slowed: o.Slowed, writev: o.Writev})
	return c
}

// Run serves the connection until it has ended, and returns when no stream is served any more. The caller
// closes nc then. Run has closed it already unless the connection ended in order: then the last response may
// be on its way still, which a close before the client's own end would destroy by a reset.
func (c *Conn) Run() {
	err := c.read()
	c.sayGoodbye(err, c.lastOpened(), c.o.Fault)
	c.mu.Lock()
	inOrder := c.err == nil && c.isOver()
	c.fail(err)
	c.mu.Unlock()
	if !inOrder {
		_ = c.nc.Close()
	}
	c.workers.Wait()
	c.in.Put()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free.clear()
	if !c.out.writing {
		c.releaseOut()
	}
}

func appendGoAway(dst []byte, last uint32, code Code) []byte {
	dst = appendFrame(dst, frameGoAway, 0, 0, 8)
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(dst, last), uint32(code))
}

// lastOpened returns the highest stream that the client opened.
func (c *Conn) lastOpened() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

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

// idle implements side: a client that is idle for long is to open its next stream elsewhere.
func (c *Conn) idle(now time.Time) error {
	if c.leaving {
		return io.EOF
	}
	c.idleSince = now
	go c.GoAway() // a request may be on its way
	return nil
}

func (c *Conn) mayEnd() bool { return true }

func (c *Conn) unsent(int64) {}

// Running returns how many streams are served.
func (c *Conn) Running() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

// Moved returns how many bytes of bodies passed on all streams, in both directions.
func (c *Conn) Moved() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.moved
}

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
		if c.keepPace() {
			c.GoAway()
		}
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
		if n := min(c.w, len(Preface)); string(c.got()[:n]) != Preface[:n] {
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

// startAtOnce is how many streams of a connection begin before others have their turn. A thousand requests come in
// one read, and what they make runnable at once, requests of other clients would wait for.
const startAtOnce = 16

// startReady starts the workers of the streams that have begun. It is done after all that was read, since
// their first frames may follow.
func (c *Conn) startReady() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range c.ready {
		if i%startAtOnce == startAtOnce-1 {
			c.mu.Unlock()
			runtime.Gosched()
			c.mu.Lock()
		}
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
