package policy

import "time"

// lostPlaces counts places of attempts that nobody waits for any longer, in
// batches by the second they were abandoned in. A batch is freed as a whole: by
// its age, or because a probe succeeded. A place of a freed batch that is given
// back later is no longer counted.
type lostPlaces struct {
	batches [lostBatches]lostBatch // a ring; first..next-1 are in use
	first   uint32
	next    uint32
	count   int64 // in all batches
}

type lostBatch struct {
	began time.Duration
	count int64
}

const (
	lostBatches   = 64
	lostBatchTime = time.Second
)

// add counts a place abandoned at now and gives its batch.
func (l *lostPlaces) add(now time.Duration) uint32 {
	l.count++
	if l.next != l.first {
		last := &l.batches[(l.next-1)%lostBatches]
		if now-last.began < lostBatchTime || l.next-l.first == lostBatches {
			last.count++
			return l.next - 1
		}
	}
	l.batches[l.next%lostBatches] = lostBatch{began: now, count: 1}
	l.next++
	return l.next - 1
}

// giveBack takes out one place of a batch; it says no when that was freed.
func (l *lostPlaces) giveBack(batch uint32) bool {
	if batch-l.first >= l.next-l.first {
		return false
	}
	b := &l.batches[batch%lostBatches]
	if b.count == 0 {
		return false
	}
	b.count--
	l.count--
	return true
}

// expire frees the batches that ended a bound or longer ago, and says how many
// places that were.
func (l *lostPlaces) expire(now, bound time.Duration) int64 {
	freed := int64(0)
	for l.first != l.next {
		b := &l.batches[l.first%lostBatches]
		if b.count > 0 && now < b.began+lostBatchTime+bound {
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
func (l *lostPlaces) freeAll() int64 {
	freed := l.count
	l.first, l.count = l.next, 0
	return freed
}

// event is when expire has something to do.
func (l *lostPlaces) event(bound time.Duration) time.Duration {
	if l.first == l.next {
		return Forever
	}
	return l.batches[l.first%lostBatches].began + lostBatchTime + bound
}
