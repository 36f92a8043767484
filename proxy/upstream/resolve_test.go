package upstream

import (
	"context"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// endpointAddrs are the addresses of the last response.
func endpointAddrs(g *Group) (all []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.endpoints {
		all = append(all, m.addr)
	}
	return all
}

func wantLookups(t *testing.T, w *fakeNetwork, when string, want int) {
	t.Helper()
	synctest.Wait()
	if n := w.lookups(); n != want {
		t.Errorf("%s: %d lookups, want %d", when, n, want)
	}
}

func TestDialsUseALookupForItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeNetwork(t, 10*time.Second, addresses(2)...)
		g := w.group(Options{})
		for range 5 {
			_ = get(t, g, GetOptions{Fresh: true}).Close()
			time.Sleep(1900 * time.Millisecond)
		}
		wantLookups(t, w, "within its time", 1)
		time.Sleep(time.Second)
		_ = get(t, g, GetOptions{Fresh: true}).Close()
		wantLookups(t, w, "after it", 2)
	})
}

func TestALookupWithoutTTLIsUsedForOneDial(t *testing.T) {
	w := newFakeNetwork(t, 0, addresses(1)...)
	g := w.group(Options{})
	for range 3 {
		_ = get(t, g, GetOptions{Fresh: true}).Close()
	}
	if n := w.lookups(); n != 3 {
		t.Errorf("%d lookups for 3 dials", n)
	}
}

func TestNamesInUseAreRefreshed(t *testing.T) {
	for name, c := range map[string]struct{ ttl, every time.Duration }{
		"as it says":           {7 * time.Second, 7 * time.Second},
		"it does not say":      {0, unknownTTL},
		"very often":           {time.Nanosecond, minTTL},
		"hardly ever":          {24 * time.Hour, maxTTL},
		"for the cap's length": {maxTTL, maxTTL},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFakeNetwork(t, c.ttl, addresses(2)...)
				g := w.group(Options{})
				conn := get(t, g, GetOptions{})
				for n := 1; n < 5; n++ {
					time.Sleep(c.every - time.Millisecond)
					wantLookups(t, w, "early", n)
					time.Sleep(time.Millisecond)
					wantLookups(t, w, "in time", n+1)
				}
				conn.Abort()
				time.Sleep(time.Hour)
				wantLookups(t, w, "unused for an hour", 5)
			})
		})
	}
}

func TestARemovedEndpointIsDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeNetwork(t, 10*time.Second, addresses(2)...)
		g := w.group(Options{})
		held, idle := get(t, g, GetOptions{}), get(t, g, GetOptions{})
		removed := held.Addr
		if idle.Addr == removed {
			t.Fatal("two requests at once went to one address")
		}
		second := get(t, g, GetOptions{Avoid: idle.Addr}) // of the address that goes, idle when it does
		second.Release(0)
		idle.Release(0)
		w.name(10*time.Second, idle.Addr, "10.0.0.9:80")
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		if s, a := g.Stats(), g.Endpoints(); s.Idle != 1 || s.Active != 1 || a.Draining != 1 || a.Used != 2 {
			t.Errorf("%+v, %+v; want the idle connection to %s closed, the other left alone", s, a, removed)
		}
		if _, err := second.Conn.Write([]byte("x")); err == nil {
			t.Error("the idle connection is open")
		}
		for range 50 {
			if c := get(t, g, GetOptions{}); c.Addr == removed {
				t.Fatal("a new request went there")
			}
		}
		if err := held.SetDeadline(time.Now().Add(time.Second)); err != nil {
			t.Errorf("the connection in use ended: %v", err)
		}
		held.Release(0)
		if s, a := g.Stats(), g.Endpoints(); s.Active != 50 || a.Draining != 0 {
			t.Errorf("after the last request: %+v, %+v", s, a)
		}
	})
}

func TestAFailureRequestsALookup(t *testing.T) {
	for name, fails := range map[string]func(w *fakeNetwork, c *Conn){
		"a dial":       func(w *fakeNetwork, c *Conn) { w.refuse(true, addresses(2)...) },
		"an attempt":   func(w *fakeNetwork, c *Conn) { c.Endpoint.ReportFailure() },
		"a close idle": func(w *fakeNetwork, c *Conn) { c.CloseStale() },
	} {
		w := newFakeNetwork(t, time.Hour, addresses(2)...)
		g := w.group(Options{})
		c := get(t, g, GetOptions{})
		fails(w, c)
		if name == "a dial" {
			fail(t, g, t.Context(), GetOptions{Fresh: true})
		}
		w.name(time.Hour, "10.0.0.9:80") // it has moved
		if c := get(t, g, GetOptions{Fresh: true}); c.Addr != "10.0.0.9:80" || w.lookups() != 2 {
			t.Errorf("after %s: dialled %s, %d lookups", name, c.Addr, w.lookups())
		}
	}
}

func TestForceLookupIgnoresTheTTL(t *testing.T) {
	w := newFakeNetwork(t, time.Hour, addresses(2)...)
	g := w.group(Options{})
	get(t, g, GetOptions{}).Release(0)
	w.name(time.Hour, "10.0.0.9:80")
	if c := get(t, g, GetOptions{Fresh: true, ForceLookup: true}); c.Addr != "10.0.0.9:80" {
		t.Errorf("dialled %s", c.Addr)
	}
}

func TestTheLastLookupOutlivesADNSOutage(t *testing.T) {
	for name, c := range map[string]struct {
		slow bool
		took time.Duration
	}{"error": {false, 0}, "silence": {true, time.Second}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFakeNetwork(t, 2*time.Second, addresses(2)...)
				g := w.group(Options{})
				get(t, g, GetOptions{}).Release(0)
				w.mu.Lock()
				w.resolution = resolution{err: &net.DNSError{Err: "no such host", IsNotFound: true}}
				if c.slow {
					w.hang = make(chan struct{})
				}
				w.mu.Unlock()
				time.Sleep(2 * time.Minute) // idle connections and the timer are gone
				began := time.Now()
				_ = get(t, g, GetOptions{DialTimeout: 4 * time.Second}).Close() // a quarter is for the lookup
				if took := time.Since(began); took != c.took {
					t.Errorf("the dial took %v, want %v", took, c.took)
				}
				_ = get(t, g, GetOptions{DialTimeout: 4 * time.Second}).Close()
				if took := time.Since(began); took != c.took {
					t.Errorf("the second dial waited for the DNS as well: %v", took)
				}
				if got := endpointAddrs(g); !slices.Equal(got, addresses(2)) {
					t.Errorf("members %v", got)
				}
			})
		})
	}
}

// Dials wait for one lookup, each as long as it wants. None can end it for the others.
func TestDialsShareALookup(t *testing.T) {
	for name, leave := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"the first leaves": context.WithCancel,
		"the first hurries": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 50*time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFakeNetwork(t, time.Hour, addresses(2)...)
				w.hang = make(chan struct{})
				g := w.group(Options{})
				first, cancel := leave(t.Context())
				got := make(chan error, 20)
				for i := range 20 {
					ctx := t.Context()
					if i == 0 {
						ctx = first
					}
					go func() {
						c, err := g.Get(ctx, GetOptions{})
						if err == nil {
							_ = c.Close()
						}
						got <- err
					}()
					synctest.Wait()
				}
				wantLookups(t, w, "20 dials", 1)
				if s := g.Stats(); s.Dialing != 20 {
					t.Errorf("%+v", s)
				}
				time.Sleep(100 * time.Millisecond)
				cancel()
				if err := <-got; err == nil {
					t.Error("the first one got a connection")
				}
				close(w.hang)
				for range 19 {
					if err := <-got; err != nil {
						t.Error(err)
					}
				}
				wantLookups(t, w, "after it left", 1)
				if s := g.Stats(); s.Dialing != 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// Clients that leave, or have little time, do not delay the move to the new addresses of a name.
func TestALookupOutlivesTheDialThatBeganIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeNetwork(t, time.Hour, "10.0.0.1:80")
		g := w.group(Options{})
		c := get(t, g, GetOptions{})
		w.name(time.Hour, "10.0.0.9:80") // it has moved
		w.hang = make(chan struct{})
		for range 3 {
			c.Endpoint.ReportFailure()
			_ = get(t, g, GetOptions{Fresh: true, DialTimeout: 50 * time.Millisecond}).Close()
		}
		close(w.hang)
		synctest.Wait()
		if got := endpointAddrs(g); !slices.Equal(got, []string{"10.0.0.9:80"}) {
			t.Errorf("endpoints %v", got)
		}
	})
}

// Close ends a lookup that nobody waits for. One that a request waits for goes on until it leaves.
func TestCloseEndsAnUnusedLookup(t *testing.T) {
	for name, leaves := range map[string]bool{"unused": true, "used": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFakeNetwork(t, time.Hour, addresses(1)...)
				w.hang = make(chan struct{})
				g := w.group(Options{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				got := make(chan error)
				go func() {
					c, err := g.Get(ctx, GetOptions{})
					if err == nil {
						_ = c.Close()
					}
					got <- err
				}()
				synctest.Wait()
				l := g.lookup
				if leaves {
					cancel()
					<-got
				}
				g.Close()
				select {
				case <-l.done:
					if !leaves {
						t.Error("Close ended the lookup of a request")
					}
				default:
					if leaves {
						t.Error("the lookup goes on after Close")
					}
				}
				if leaves {
					return
				}
				close(w.hang)
				if err := <-got; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The last request that waits for the lookup of a closed group ends it.
func TestALookupOfAClosedGroupEndsWithItsLastUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeNetwork(t, time.Hour, addresses(1)...)
		w.hang = make(chan struct{})
		g := w.group(Options{})
		g.Close()
		began := time.Now()
		fail(t, g, t.Context(), GetOptions{DialTimeout: time.Second})
		synctest.Wait()
		if took := time.Since(began); took != time.Second || g.lookup != nil {
			t.Errorf("after %v: lookup %v", took, g.lookup)
		}
	})
}

func TestOfSeveralNamesEachKeepsItsOwn(t *testing.T) {
	target, err := ParseTarget("http://a.test:80,http://b.test:80,http://10.0.0.3:80")
	if err != nil {
		t.Fatal(err)
	}
	w := newFakeNetwork(t, 0)
	target.Dial, target.Resolve = w.dial, resolving(80).Resolve
	g := NewGroup(target, Options{})
	t.Cleanup(g.Close)
	lost := false
	g.resolve = func(ctx context.Context, s *source) resolution {
		switch s.target.Address {
		case "a.test:80":
			return resolution{addrs: []resolvedAddr{{"10.0.0.1:80", 0, 1}, {"10.0.0.3:80", 0, 1}}}
		case "b.test:80":
			if lost {
				return resolution{err: &net.DNSError{IsTimeout: true}}
			}
			return resolution{addrs: []resolvedAddr{{"10.0.0.2:80", 0, 1}}}
		}
		return resolveSource(ctx, s)
	}
	for range 2 {
		get(t, g, GetOptions{ForceLookup: true}).Release(0)
		if got := endpointAddrs(g); !slices.Equal(got, []string{"10.0.0.1:80", "10.0.0.3:80", "10.0.0.2:80"}) {
			t.Errorf("lost %t: %v", lost, got)
		}
		lost = true
	}
}
