package breaker

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// abandonedPermits counts the permits of attempts that no client waits for, in batches by
// the second in which they were abandoned. A batch is freed as a whole: by its age, or
// because a probe succeeded. A permit of a freed batch that is released later no longer
// counts.
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

// add counts a permit abandoned at now and returns its batch.
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

// release removes one permit from a batch and reports false if the batch was freed.
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

// expire frees the batches that ended at least bound ago, and returns the number of permits
// freed.
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

// freeAll frees every batch and returns the number of permits freed.
func (l *abandonedPermits) freeAll() int64 {
	freed := l.count
	l.first, l.count = l.next, 0
	return freed
}

// nextEvent returns when expire will free the first batch, or Forever.
func (l *abandonedPermits) nextEvent(bound time.Duration) time.Duration {
	if l.first == l.next {
		return backoff.Forever
	}
	return l.batches[l.first%abandonedBatches].began + abandonedBatchTime + bound
}
