package http2

import "time"

// alarm wakes a stream that waits for its peer. The timers of a connection are used again, since a stream waits
// often and seldom in vain.
type alarm struct {
	timer *time.Timer
	s     *flow
}

// mostAlarms is how many a connection keeps that nobody uses. They go with its last stream.
const mostAlarms = 128

// setAlarm wakes s after d, unless endAlarm is called before. It is called with mu held.
func (c *link) setAlarm(s *flow, d time.Duration) *alarm {
	n := len(c.alarms)
	if n == 0 {
		a := &alarm{s: s}
		a.timer = time.AfterFunc(d, a.ring)
		return a
	}
	a := c.alarms[n-1]
	c.alarms[n-1] = nil
	c.alarms = c.alarms[:n-1]
	a.s = s
	a.timer.Reset(d)
	return a
}

// endAlarm ends a. One that rings already is not used again. It is called with mu held.
func (c *link) endAlarm(a *alarm) {
	if a.timer.Stop() && len(c.alarms) < mostAlarms {
		a.s = nil
		c.alarms = append(c.alarms, a)
	}
}

func (a *alarm) ring() {
	c := a.s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	a.s.wake()
}
