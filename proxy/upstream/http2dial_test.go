package upstream

import (
	"context"
	"net"
	"sync"
	"syscall"
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

// A dial that panics does not keep the requests that wait for it, or come later, from dialing.
func TestAPanicInASharedDialEndsItForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		target := Target{Network: "tcp", Address: "10.0.0.1:80", Protocol: HTTP2, Dial: func(context.Context, string, string) (net.Conn, error) {
			if dials++; dials == 1 {
				time.Sleep(time.Second)
				panic("a fault of the test")
			}
			return nil, errno("connect", syscall.ECONNREFUSED)
		}}
		p := makePool(t, target, Options{})
		var all sync.WaitGroup
		all.Go(func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_, _ = p.Get(t.Context(), GetOptions{})
		})
		synctest.Wait()
		began := time.Now()
		if d := fail(t, p, t.Context(), GetOptions{}); d.Kind != KindRefused || time.Since(began) != time.Second {
			t.Errorf("%s after %v", d.Kind, time.Since(began))
		}
		all.Wait()
		if n := p.Stats().Dialing; n != 0 {
			t.Errorf("%d dials in progress", n)
		}
	})
}
