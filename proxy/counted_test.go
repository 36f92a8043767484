package proxy

import (
	"slices"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// A wait of 0 counts: without it, the mean of the waits is too high.
func TestAWaitOfZeroIsCounted(t *testing.T) {
	inMemory(t, script(bad503, bad503, ok200), func(c *Config) { c.Default.Policy.Backoff = nil }, func(t *testing.T, m *memory) {
		m.client().send(get("/")).want(200, "ok")
		if !slices.Equal(m.seen.waits, []time.Duration{0, 0}) || m.seen.waiting != 0 {
			t.Errorf("waits %v, %d waiting", m.seen.waits, m.seen.waiting)
		}
	})
}

// A 5xx that is not retried is no success.
func TestAnErrorThatIsNotRetriedIsNotOK(t *testing.T) {
	on, err := policy.ParseRetryOn("503")
	if err != nil {
		t.Fatal(err)
	}
	for status, want := range map[string]policy.Class{"200": policy.ClassNone, "404": policy.ClassNone, "500": policy.Unknown, "501": policy.Unknown, "505": policy.Unknown, "511": policy.Unknown} {
		inMemory(t, script("HTTP/1.1 "+status+" X\r\nContent-Length: 0\r\n\r\n"), func(c *Config) { c.Default.Policy.RetryOn = on }, func(t *testing.T, m *memory) {
			if _, _, err := m.client().send(get("/")).response("GET"); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(m.seen.classes, []policy.Class{want}) || len(m.seen.retries) > 0 {
				t.Errorf("%s: classes %v, %d retries", status, m.seen.classes, len(m.seen.retries))
			}
		})
	}
}
