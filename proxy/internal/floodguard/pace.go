// Package floodguard bounds the cost of frames of HTTP/2: those that request nothing, and requests that their client
// ends at once.
//
// A peer that sends too much is slowed down rather than disconnected, so that its other streams continue.
package floodguard

import "time"

// How many frames that carry nothing a peer may send: SETTINGS, PING, RST_STREAM, PRIORITY, CONTINUATION, GOAWAY,
// unknown ones, and DATA without content. Each costs about as much as parsing a request's headers. A peer needs a
// few at its beginning, one now and then, and one more for each piece of a body that it gets, about which gRPC's
// client sends a PING.
//
// A peer that sends more is read as slowly as its allowance grows, so that its other streams go on. One that does
// not stop for floodPatience gets GOAWAY if it is a client, and is given up if it is an upstream.
const (
	IdleFrames          = 2000 // at once
	idleFramesPerSecond = 1000

	// A client's RST_STREAM, and the streams that it makes us reset (MadeYouReset, CVE-2025-8671: a WINDOW_UPDATE of
	// 0 or beyond the largest window, DATA after END_STREAM, more DATA than announced, a stream that depends on
	// itself), count as resets, too.
	resetsAtOnce    = 200
	resetsPerSecond = 1000

	paceStep      = 10 * time.Millisecond // the shortest pause, so that it is worth its timer
	floodPatience = 5 * time.Second
)

// Pace says how slowly an HTTP/2 peer is read that sends too many frames that carry nothing. One goroutine uses it.
type Pace struct {
	frames, resets allowance
	earned         int // frames more, since an allowance was overdrawn last
	slowSince      time.Time
	slowUntil      time.Time // zero: it was never slowed down
}

// NewPace returns the pace of a new connection.
func NewPace() Pace {
	now := time.Now()
	return Pace{
		frames: allowance{tokens: IdleFrames, max: IdleFrames, perSecond: idleFramesPerSecond, at: now},
		resets: allowance{tokens: resetsAtOnce, max: resetsAtOnce, perSecond: resetsPerSecond, at: now},
	}
}

// Traffic counts the frames of a peer that carry nothing.
type Traffic struct {
	Frames int
	Resets int // of Frames
	Earned int // frames that it may send more, by pieces of bodies that it got and responses that ended
}

// Due takes what came, and returns how long the peer must not be read: 0 or at least paceStep. flood is whether it
// has not stopped for floodPatience.
func (p *Pace) Due(came Traffic) (pause time.Duration, flood bool) {
	if came == (Traffic{}) {
		return 0, false
	}
	p.frames.tokens -= came.Frames
	p.resets.tokens -= came.Resets
	p.earned += came.Earned
	if p.frames.tokens >= 0 && p.resets.tokens >= 0 {
		return 0, false
	}
	p.frames.earn(p.earned)
	p.resets.earn(p.earned)
	p.earned = 0
	now := time.Now()
	if pause = max(p.frames.debt(now), p.resets.debt(now)); pause < paceStep {
		return 0, false
	}
	if now.Sub(p.slowUntil) > time.Second { // a second without a pause ends a flood
		p.slowSince = now
	}
	p.slowUntil = now.Add(pause)
	return pause, p.slowUntil.Sub(p.slowSince) > floodPatience
}

// allowance grows with time up to max. It may be overdrawn.
type allowance struct {
	tokens, max, perSecond int
	at                     time.Time // when it last grew with time
}

func (a *allowance) earn(n int) { a.tokens = min(a.tokens+n, a.max) }

// debt adds what time has earned, and returns how long it takes until the allowance is no longer overdrawn.
func (a *allowance) debt(now time.Time) time.Duration {
	if earned := min(now.Sub(a.at), time.Hour) * time.Duration(a.perSecond) / time.Second; earned > 0 {
		a.earn(int(earned))
		a.at = now
	}
	if a.tokens >= 0 || a.perSecond == 0 {
		return 0
	}
	return time.Duration(-a.tokens) * time.Second / time.Duration(a.perSecond)
}
