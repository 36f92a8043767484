package upstream

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// Requests that wait for one dial of HTTP/2 each have their own time to connect.
func TestASharedDialEndsForEachRequestAtItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		target := Target{Network: "tcp", Address: "10.0.0.1:80", Protocol: HTTP2, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			dials++
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		p := makePool(t, target, Options{})
		began := time.Now()
		took := map[time.Duration]chan time.Duration{}
		for _, timeout := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second} {
			done := make(chan time.Duration, 2)
			took[timeout] = done
			for range cap(done) {
				go func() {
					if d := fail(t, p, t.Context(), GetOptions{DialTimeout: timeout}); d.Kind != KindTimeout {
						t.Errorf("kind %s", d.Kind)
					}
					done <- time.Since(began)
				}()
			}
			synctest.Wait() // the first one dials
		}
		for timeout, done := range took {
			for range cap(done) {
				if got := <-done; got != timeout {
					t.Errorf("a dial with %v ended after %v", timeout, got)
				}
			}
		}
		if dials > 4 {
			t.Errorf("%d dials", dials)
		}
	})
}
