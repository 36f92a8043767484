package http2

import "time"

// How many frames that carry nothing an upstream may send: SETTINGS, PING, RST_STREAM, PRIORITY,
// CONTINUATION, unknown ones, and DATA without content. One that sends more is read as slowly as its
// allowance grows; one that does not stop for floodPatience is given up.
const (
	idleAtOnce    = 2000
	idlePerSecond = 1000
	paceStep      = 10 * time.Millisecond // the shortest pause, so that it is worth its timer
	floodPatience = 5 * time.Second
)

// pace slows down a peer that sends too many frames that carry nothing. One goroutine uses it.
type pace struct {
	left      int       // frames that may come now
	at        time.Time // when left last grew
	slowSince time.Time
	slowUntil time.Time
}

func newPace() pace { return pace{left: idleAtOnce, at: time.Now()} }

// wait takes the frames that came, and waits until the peer may send more. It returns an error if the peer
// does not stop.
func (p *pace) wait(came *int) error {
	if *came == 0 {
		return nil
	}
	p.left -= *came
	*came = 0
	if p.left >= 0 {
		return nil
	}
	now := time.Now()
	if earned := int(min(now.Sub(p.at), time.Minute) * idlePerSecond / time.Second); earned > 0 {
		p.left, p.at = min(p.left+earned, idleAtOnce), now
	}
	pause := time.Duration(-p.left) * time.Second / idlePerSecond
	if pause < paceStep {
		return nil
	}
	if now.Sub(p.slowUntil) > time.Second {
		p.slowSince = now
	}
	if p.slowUntil = now.Add(pause); p.slowUntil.Sub(p.slowSince) > floodPatience {
		return refuse(EnhanceYourCalm, "the upstream sends frames that carry nothing")
	}
	time.Sleep(pause)
	return nil
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
