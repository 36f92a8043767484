package rig

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Tick is how finely a Timeline is kept.
const Tick = 100 * time.Millisecond

// Counts are numbers by name. Of a name that ends in " at once" the largest counts, of others the sum.
type Counts map[string]int

// Add adds o to c.
func (c Counts) Add(o Counts) {
	for name, n := range o {
		if strings.HasSuffix(name, " at once") {
			c[name] = max(c[name], n)
		} else {
			c[name] += n
		}
	}
}

// Kinds adds up the counts whose name begins so.
func (c Counts) Kinds(begin string) (sum int) {
	for name, n := range c {
		if strings.HasPrefix(name, begin) {
			sum += n
		}
	}
	return sum
}

// Timeline counts what happens in each Tick from its begin on. It is safe for concurrent use.
type Timeline struct {
	made  time.Time
	began atomic.Int64 // nanoseconds after made

	mu    sync.Mutex // guards what follows
	ticks []Counts
	took  []time.Duration
}

// NewTimeline makes one that begins now.
func NewTimeline() *Timeline { return &Timeline{made: time.Now()} }

// Begin makes the timeline begin now. What was counted before is in its first tick.
func (t *Timeline) Begin() { t.began.Store(int64(time.Since(t.made))) }

// Since is the time since the begin.
func (t *Timeline) Since() time.Duration {
	return max(0, time.Since(t.made)-time.Duration(t.began.Load()))
}

// Count counts n by name, now.
func (t *Timeline) Count(name string, n int) {
	i := int(t.Since() / Tick)
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.ticks) <= i {
		t.ticks = append(t.ticks, Counts{})
	}
	t.ticks[i].Add(Counts{name: n})
}

// Took keeps how long a response took.
func (t *Timeline) Took(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.took = append(t.took, d)
}

// Within is the time in which this share of all responses arrived; 0 of none.
func (t *Timeline) Within(share float64) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.took) == 0 {
		return 0
	}
	all := slices.Sorted(slices.Values(t.took))
	return all[min(int(share*float64(len(all))), len(all)-1)]
}

// Sum adds up the ticks from from (inclusive) to to (exclusive).
func (t *Timeline) Sum(from, to time.Duration) Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Sum(t.ticks, from, to)
}

// Total adds up all that was counted.
func (t *Timeline) Total() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Sum(t.ticks, 0, time.Duration(len(t.ticks))*Tick)
}

// Ticks copies the ticks of the first length.
func (t *Timeline) Ticks(length time.Duration) []Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Counts, length/Tick)
	for i := range all {
		if all[i] = (Counts{}); i < len(t.ticks) {
			all[i] = maps.Clone(t.ticks[i])
		}
	}
	return all
}

// Sum adds up ticks from from (inclusive) to to (exclusive).
func Sum(ticks []Counts, from, to time.Duration) Counts {
	sum := Counts{}
	first := max(0, min(int(from/Tick), len(ticks)))
	for _, c := range ticks[first:max(first, min(int(to/Tick), len(ticks)))] {
		sum.Add(c)
	}
	return sum
}

// Seconds adds up ticks by whole seconds.
func Seconds(ticks []Counts) (all []Counts) {
	const perSecond = int(time.Second / Tick)
	for i := 0; i+perSecond <= len(ticks); i += perSecond {
		all = append(all, Sum(ticks, time.Duration(i)*Tick, time.Duration(i+perSecond)*Tick))
	}
	return all
}
