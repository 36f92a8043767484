package logtest

import (
	"strings"
	"sync"
	"testing"
)

// With the race detector this fails if a Buffer may not be read during writes.
func TestABufferIsReadDuringWrites(t *testing.T) {
	const writers, lines = 4, 100
	var b Buffer
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range lines {
				if n, err := b.Write([]byte("line\n")); n != 5 || err != nil {
					t.Errorf("%d, %v", n, err)
				}
				if s := b.String(); strings.ReplaceAll(s, "line\n", "") != "" {
					t.Errorf("a line was cut: %q", s)
				}
			}
		})
	}
	all.Wait()
	if got := strings.Count(b.String(), "line\n"); got != writers*lines {
		t.Errorf("%d lines of %d", got, writers*lines)
	}
}
