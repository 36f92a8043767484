package request

import "sync/atomic"

// RetryBuffer is the memory that the process may use to keep request bodies and failed responses
// for retries. Safe for concurrent use.
type RetryBuffer struct {
	Limit int64
	Used  atomic.Int64
}

// Take reserves n bytes. It reports false, and reserves nothing, if they do not fit.
func (m *RetryBuffer) Take(n int) bool {
	if m.Used.Add(int64(n)) > m.Limit {
		m.Used.Add(int64(-n))
		return false
	}
	return true
}

// Give returns n bytes that Take reserved.
func (m *RetryBuffer) Give(n int) { m.Used.Add(int64(-n)) }
