package http2

import (
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/floodguard"
)

// count counts a frame that carries nothing.
func (c *link) count(f *frame) {
	if f.isIdle() {
		c.idleCame.Frames++
	}
	if f.kind == FrameRSTStream && !c.isUpstream { // one of an upstream ends a request of ours: there are no more than those
		c.idleCame.Resets++
	}
}

// keepPace waits until the peer may send more. flood is whether it does not stop.
func (c *link) keepPace() (flood bool) {
	came := c.idleCame
	c.idleCame = floodguard.Traffic{}
	c.mu.Lock()
	came.Earned, c.earned = c.earned, 0
	came.Frames += c.provoked
	came.Resets += c.provoked
	c.provoked = 0
	c.mu.Unlock()
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
