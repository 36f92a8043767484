package proxy

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/clock"
)

// Uploads that were admitted and wait for memory are not awaited yet. If they did not count, more would be
// admitted at each count, and take all memory as soon as it is free.
func TestUploadsThatWaitForMemoryCount(t *testing.T) {
	u := uploadLimit{most: 8}
	now := clock.Instant(time.Hour)
	none := func() int { return 0 }
	for range 8 {
		if !u.begin(now, none) {
			t.Fatal("one of the first eight is refused")
		}
		u.coming.Add(1)
	}
	if u.fewCome() {
		t.Error("eight of eight are few")
	}
	for i := range 3 {
		if now = now.Add(evictEvery); u.begin(now, none) {
			t.Fatalf("a ninth begins at count %d", i)
		}
	}
	u.coming.Add(-6) // they are served, and their bodies are awaited
	now = now.Add(evictEvery)
	if u.begin(now, func() int { return 6 }) {
		t.Error("six are awaited and two wait for memory, and a ninth begins")
	}
	if !u.fewCome() {
		t.Error("two of eight are many")
	}
}
