package http2

import (
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/floodguard"
)

// count counts a frame that carries nothing.
func (c *link) count(f *frame) {
	if f.isIdle() {
		c.idleFrames++
	}
	if f.kind == FrameRSTStream && !c.isUpstream { // one of an upstream ends a request of ours: there are no more than those
		c.resetFrames++
	}
}

// keepPace waits until the peer may send more. flood is whether it does not stop.
func (c *link) keepPace() (flood bool) {
	c.mu.Lock()
	came := floodguard.Traffic{Frames: c.idleFrames + c.provoked, Resets: c.resetFrames + c.provoked, Earned: c.earned}
	c.provoked, c.earned = 0, 0
	c.mu.Unlock()
	c.idleFrames, c.resetFrames = 0, 0
	pause, flood := c.pace.Due(came)
	if pause > 0 {
		if c.slowed != nil {
			c.slowed()
			c.slowed = nil
		}
		time.Sleep(pause)
	}
	return flood
}

// isIdle reports whether a frame carries nothing for a stream.
func (f *frame) isIdle() bool {
	switch f.kind {
	case FrameHeaders, FrameWindowUpdate:
		return false
	case FrameData:
		return f.length == 0 && !f.has(FlagEndStream)
	}
	return true
}
