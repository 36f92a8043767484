package ratelimit

import "time"

// Level returns how much is left of the rate limit of a row, and the limit; false if it is unknown.
func (q *Buckets) Level(now time.Duration, row uint8) (left, limit float64, ok bool) {
	for i := range q.all[:q.n] {
		if b := &q.all[i]; b.row == row {
			b.advance(now)
			return b.level, b.limit, true
		}
	}
	return 0, 0, false
}
