package peers

import (
	"runtime"
	"testing"
	"time"
)

// Patience ends a test that hangs; nothing that works takes so long, also on a
// machine that is busy with other things.
const Patience = 3 * time.Minute

// Soon waits until cond holds, within Patience.
func Soon(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", Patience, what)
		}
	}
}

// Within gives what arrives on ch, within Patience.
func Within[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(Patience):
		t.Fatalf("not within %v: %s", Patience, what)
		panic("unreachable")
	}
}

// failAfterPatience fails a test that does not end within Patience of this call, and prints what all goroutines do.
// The deadlines of the kit end what hangs, and a test that ignores how a read ended would pass then.
func failAfterPatience(t testing.TB) {
	t.Helper()
	over := make(chan struct{})
	timer := time.AfterFunc(Patience, func() {
		defer close(over)
		stacks := make([]byte, 1<<20)
		t.Errorf("has not ended within %v:\n%s", Patience, stacks[:runtime.Stack(stacks, true)])
	})
	t.Cleanup(func() {
		if !timer.Stop() {
			<-over
		}
	})
}
