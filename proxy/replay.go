package proxy

import "sync/atomic"

// replayMemory is the process's allowance for bytes kept only so that a
// request can be retried or a response held. Safe for concurrent use.
type replayMemory struct {
	limit int64
	used  atomic.Int64
}

// take reserves n bytes, or nothing and says false when they do not fit.
func (m *replayMemory) take(n int) bool {
	if m.used.Add(int64(n)) > m.limit {
		m.used.Add(int64(-n))
		return false
	}
	return true
}

// give returns n bytes that take reserved.
func (m *replayMemory) give(n int) { m.used.Add(int64(-n)) }
