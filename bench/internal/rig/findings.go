package rig

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// mostPerKind bounds the findings of one kind that are kept as text.
const mostPerKind = 10

// Findings collects violations and counts. The zero value is ready for use. It is safe for concurrent
// use.
type Findings struct {
	mu    sync.Mutex // guards what follows
	n     int
	kinds map[string]int
	first []string

	counts  map[string]int64
	longest map[string]time.Duration
}

// Add adds a violation. Its kind is the format up to the first colon.
func (f *Findings) Add(format string, a ...any) {
	kind, _, _ := strings.Cut(format, ":")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kinds == nil {
		f.kinds = map[string]int{}
	}
	f.n++
	if f.kinds[kind]++; f.kinds[kind] <= mostPerKind {
		f.first = append(f.first, fmt.Sprintf(format, a...))
	}
}

// Count adds n to what is counted under a name.
func (f *Findings) Count(what string, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counts == nil {
		f.counts = map[string]int64{}
	}
	f.counts[what] += n
}

// Counted returns the count of a name.
func (f *Findings) Counted(what string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[what]
}

// Counts returns a copy of all counts.
func (f *Findings) Counts() map[string]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.counts)
}

// AtLeast adds a violation if fewer than n were counted: a judge that saw too little proves nothing.
func (f *Findings) AtLeast(n int64, what string) {
	if got := f.Counted(what); got < n {
		f.Add("only %d %s: nothing can be said", got, what)
	}
}

// Longest records how long something took. It returns the longest time recorded under the name.
func (f *Findings) Longest(what string, d time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.longest == nil {
		f.longest = map[string]time.Duration{}
	}
	f.longest[what] = max(f.longest[what], d)
	return f.longest[what]
}

// N returns the number of violations.
func (f *Findings) N() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

// Kinds returns the kinds of the violations, sorted.
func (f *Findings) Kinds() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.kinds))
}

// All returns the first violations of each kind, and the totals of the kinds that had more.
func (f *Findings) All() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Clone(f.first)
	for _, kind := range slices.Sorted(maps.Keys(f.kinds)) {
		if n := f.kinds[kind]; n > mostPerKind {
			all = append(all, fmt.Sprintf("%s: %d in all", kind, n))
		}
	}
	return all
}
