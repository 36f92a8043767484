package http2

import (
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/floodguard"
)

// count counts a frame that carries nothing.
func (l *link) count(f *frame) {
	if f.isIdle() {
		l.idleFrames++
	}
	if f.kind == FrameRSTStream && !l.isUpstream { // one of an upstream ends a request of ours: there are no more than those
		l.resetFrames++
	}
}

// keepPace waits until the peer may send more. flood is whether it does not stop.
func (l *link) keepPace() (flood bool) {
	l.mu.Lock()
	came := floodguard.Traffic{Frames: l.idleFrames + l.provoked, Resets: l.resetFrames + l.provoked, Earned: l.earned}
	l.provoked, l.earned = 0, 0
	l.mu.Unlock()
	l.idleFrames, l.resetFrames = 0, 0
	pause, flood := l.pace.Due(came)
	if pause > 0 {
		if l.slowed != nil {
			l.slowed()
			l.slowed = nil
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
