package rig

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// mostTold bounds what is told of one kind.
const mostTold = 10

// Findings are what must not be, and was. The zero Findings has none. It is safe for concurrent use.
type Findings struct {
	mu    sync.Mutex // guards what follows
	n     int
	kinds map[string]int
	first []string

	counts  map[string]int64
	longest map[string]time.Duration
}

// Add notes a finding. Its kind is the begin of the format, up to a colon.
func (f *Findings) Add(format string, a ...any) {
	kind, _, _ := strings.Cut(format, ":")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kinds == nil {
		f.kinds = map[string]int{}
	}
	f.n++
	if f.kinds[kind]++; f.kinds[kind] <= mostTold {
		f.first = append(f.first, fmt.Sprintf(format, a...))
	}
}

// Count counts something that a judge looks at.
func (f *Findings) Count(what string, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counts == nil {
		f.counts = map[string]int64{}
	}
	f.counts[what] += n
}

// Counted is how much of it was counted.
func (f *Findings) Counted(what string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[what]
}

// Counts copies all that was counted.
func (f *Findings) Counts() map[string]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.counts)
}

// AtLeast is for a judge that saw too little of something to find anything.
func (f *Findings) AtLeast(n int64, what string) {
	if got := f.Counted(what); got < n {
		f.Add("only %d %s: nothing can be said", got, what)
	}
}

// Longest notes how long something took, and returns the longest time of all.
func (f *Findings) Longest(what string, d time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.longest == nil {
		f.longest = map[string]time.Duration{}
	}
	f.longest[what] = max(f.longest[what], d)
	return f.longest[what]
}

// N is how many were found.
func (f *Findings) N() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

// Kinds are the kinds of what was found, sorted.
func (f *Findings) Kinds() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.kinds))
}

// All are the first ones of each kind, and the numbers of those that were found more often.
func (f *Findings) All() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Clone(f.first)
	for _, kind := range slices.Sorted(maps.Keys(f.kinds)) {
		if n := f.kinds[kind]; n > mostTold {
			all = append(all, fmt.Sprintf("%s: %d in all", kind, n))
		}
	}
	return all
}
