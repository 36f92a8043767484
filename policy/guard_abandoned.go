package policy

import "time"

// abandonedPermits counts permits of attempts that nobody waits for any longer, in
// batches by the second they were abandoned in. A batch is freed as a whole: by
// its age, or because a probe succeeded. A place of a freed batch that is given
// back later is no longer counted.
type abandonedPermits struct {
	batches [abandonedBatches]abandonedBatch // a ring; first..next-1 are in use
	first   uint32
	next    uint32
	count   int64 // in all batches
}

type abandonedBatch struct {
	began time.Duration
	count int64
}

const (
	abandonedBatches   = 64
	abandonedBatchTime = time.Second
)

// add counts a place abandoned at now and gives its batch.
func (l *abandonedPermits) add(now time.Duration) uint32 {
	l.count++
	if l.next != l.first {
		last := &l.batches[(l.next-1)%abandonedBatches]
		if now-last.began < abandonedBatchTime || l.next-l.first == abandonedBatches {
			last.count++
			return l.next - 1
		}
	}
	l.batches[l.next%abandonedBatches] = abandonedBatch{began: now, count: 1}
	l.next++
	return l.next - 1
}

// release takes out one place of a batch; it says no when that was freed.
func (l *abandonedPermits) release(batch uint32) bool {
	if batch-l.first >= l.next-l.first {
		return false
	}
	b := &l.batches[batch%abandonedBatches]
	if b.count == 0 {
		return false
	}
	b.count--
	l.count--
	return true
}

// expire frees the batches that ended a bound or longer ago, and says how many
// permits that were.
func (l *abandonedPermits) expire(now, bound time.Duration) int64 {
	freed := int64(0)
	for l.first != l.next {
		b := &l.batches[l.first%abandonedBatches]
		if b.count > 0 && now < b.began+abandonedBatchTime+bound {
			break
		}
		freed += b.count
		b.count = 0
		l.first++
	}
	l.count -= freed
	return freed
}

// freeAll frees every batch.
func (l *abandonedPermits) freeAll() int64 {
	freed := l.count
	l.first, l.count = l.next, 0
	return freed
}

// nextEvent is when expire has something to do.
func (l *abandonedPermits) nextEvent(bound time.Duration) time.Duration {
	if l.first == l.next {
		return Forever
	}
	return l.batches[l.first%abandonedBatches].began + abandonedBatchTime + bound
}
