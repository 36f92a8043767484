package http2

import "time"

// alarm wakes the streams of a connection whose deadlines pass while they wait. It is one timer, for the earliest
// deadline, and stays set when a wait ends before: streams wait often and seldom in vain. A timer for each wait cost
// 2.5 % of the CPU of h2c to h2c. All of it is guarded by link.mu.
type alarm struct {
	timer *time.Timer // nil: not used yet
	at    time.Time   // when it rings; zero: it is not set
}

// wakeBy wakes the streams that wait at by. It is called with mu held.
func (l *link) wakeBy(by time.Time) {
	a := &l.alarm
	if !a.at.IsZero() && !by.Before(a.at) {
		return
	}
	a.at = by
	if d := time.Until(by); a.timer == nil {
		a.timer = time.AfterFunc(d, l.ring)
	} else {
		a.timer.Reset(d)
	}
}

// ring wakes the streams whose deadlines have passed, and sets the alarm for the others.
func (l *link) ring() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alarm.at = noTime
	now := time.Now()
	for _, s := range l.streams {
		if s.waiting == 0 {
			continue
		}
		for _, by := range [...]time.Time{s.readBy, s.writeBy} {
			switch {
			case by.IsZero():
			case now.Before(by):
				l.wakeBy(by)
			default:
				s.wake()
			}
		}
	}
}
