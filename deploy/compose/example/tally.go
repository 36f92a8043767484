package main

import (
	"strconv"
	"sync"
)

// tally counts by method and status. Safe for concurrent use; the zero value
// is empty.
type tally struct {
	mu     sync.Mutex // guards counts
	counts map[string]int64
}

func (t *tally) add(method string, code int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[string]int64{}
	}
	t.counts[method+" "+strconv.Itoa(code)]++
}

// all is a copy, by "GET 200".
func (t *tally) all() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := make(map[string]int64, len(t.counts))
	for k, n := range t.counts {
		c[k] = n
	}
	return c
}
