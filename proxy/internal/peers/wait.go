package peers

import (
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
