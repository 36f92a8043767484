package upstream

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// usableAddrs are the addresses that requests go to.
func usableAddrs(g *Group) (all []string) {
	for _, m := range g.picker.Load().usable {
		all = append(all, m.addr)
	}
	slices.Sort(all)
	return all
}

func wantUsable(t *testing.T, g *Group, when string, want ...string) {
	t.Helper()
	if got := usableAddrs(g); !slices.Equal(got, want) {
		t.Errorf("%s: used are %v, want %v", when, got, want)
	}
}

// three addresses, looked up.
func three(t *testing.T, o Options) (*fakeNetwork, *Group, [3]*Endpoint) {
	t.Helper()
	w := newFakeNetwork(t, 0, addresses(3)...)
	g := w.group(o)
	get(t, g, GetOptions{}).Release(0)
	var m [3]*Endpoint
	for i := range m {
		m[i] = g.endpoint(t, addresses(3)[i])
	}
	return w, g, m
}

func failTimes(m *Endpoint, n int) {
	for range n {
		m.ReportFailure()
	}
}

func TestFailuresInARowEjectForLongerEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, g, m := three(t, Options{})
		all := addresses(3)
		failTimes(m[0], DefaultEjectAfter-1)
		wantUsable(t, g, "before the last failure", all...)
		m[0].ReportSuccess()
		failTimes(m[0], DefaultEjectAfter-1)
		wantUsable(t, g, "the row was broken", all...)
		m[0].ReportFailure()
		wantUsable(t, g, "ejected", all[1:]...)
		for times := 1; times <= 12; times++ {
			lasts := time.Duration(min(times, 10)) * DefaultEjectFor
			time.Sleep(lasts - time.Second)
			wantUsable(t, g, "a second too early", all[1:]...)
			time.Sleep(2 * time.Second)
			wantUsable(t, g, "back", all...)
			m[0].ReportFailure() // one is enough
			wantUsable(t, g, "ejected again", all[1:]...)
		}
	})
}

func TestEjectionsAreForgiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, g, m := three(t, Options{Eject: Eject{For: 10 * time.Second, After: 1}})
		m[0].ReportFailure()
		time.Sleep(11 * time.Second)
		m[0].ReportFailure() // the second time: 20 s
		time.Sleep(20*time.Second + 30*time.Second)
		m[0].ReportFailure() // both forgiven
		time.Sleep(9 * time.Second)
		wantUsable(t, g, "ejected", addresses(3)[1:]...)
		time.Sleep(2 * time.Second)
		wantUsable(t, g, "back after the first time's length", addresses(3)...)
	})
}

func TestASuccessEndsAnEjection(t *testing.T) {
	for _, after := range []int{1, 5} {
		_, g, m := three(t, Options{Eject: Eject{After: after}})
		failTimes(m[0], after)
		wantUsable(t, g, "ejected", addresses(3)[1:]...)
		m[0].ReportSuccess()
		wantUsable(t, g, "answered", addresses(3)...)
	}
}

func TestWhenMoreThanHalfWouldBeEjectedAllAreUsed(t *testing.T) {
	for n, c := range map[int]struct{ ejected, left int }{1: {1, 1}, 2: {1, 1}, 3: {1, 2}, 4: {2, 2}, 5: {2, 3}} {
		w := newFakeNetwork(t, 0, addresses(n)...)
		g := w.group(Options{})
		get(t, g, GetOptions{}).Release(0)
		for i, addr := range addresses(n) {
			failTimes(g.endpoint(t, addr), DefaultEjectAfter)
			want := addresses(n)
			if i < c.ejected && n > 1 {
				want = want[i+1:]
			}
			if wantUsable(t, g, "", want...); i == c.ejected-1 && len(usableAddrs(g)) != c.left {
				t.Errorf("of %d, %d ejected, %d are used", n, i+1, len(usableAddrs(g)))
			}
		}
	}
}

func TestDialsThatFailEject(t *testing.T) {
	w, g, m := three(t, Options{})
	w.refuse(true, m[1].addr)
	for range 200 {
		c := get(t, g, GetOptions{Fresh: true})
		c.Endpoint.ReportSuccess()
		c.Release(0)
	}
	wantUsable(t, g, "", m[0].addr, m[2].addr)
	if n := m[1].failed.Load(); n != DefaultEjectAfter {
		t.Errorf("dialled %d times in vain", n)
	}
	if a := g.Endpoints(); a.Ejected != 1 || a.Used != 2 {
		t.Errorf("%+v", a)
	}
}

func TestEjectionCanBeOff(t *testing.T) {
	_, g, m := three(t, Options{Eject: Eject{After: -1}})
	failTimes(m[0], 100)
	wantUsable(t, g, "", addresses(3)...)
}

func TestOnlyAnEjectedEndpointRemains(t *testing.T) {
	w, g, m := three(t, Options{})
	failTimes(m[0], DefaultEjectAfter)
	w.refuse(true, m[1].addr, m[2].addr)
	if c := get(t, g, GetOptions{Fresh: true}); c.Addr != m[0].addr {
		t.Errorf("reached %s", c.Addr)
	}
}

func TestPriorityGivesWayWhenItsAddressesAreEjected(t *testing.T) {
	w := newFakeNetwork(t, 0)
	w.resolution.addrs = []resolvedAddr{{"10.0.0.3:80", 2, 1}, {"10.0.0.1:80", 1, 1}, {"10.0.0.2:80", 1, 1}}
	g := w.group(Options{})
	get(t, g, GetOptions{}).Release(0)
	failTimes(g.endpoint(t, "10.0.0.1:80"), DefaultEjectAfter)
	wantUsable(t, g, "one of two", "10.0.0.2:80")
	failTimes(g.endpoint(t, "10.0.0.2:80"), DefaultEjectAfter)
	wantUsable(t, g, "both", "10.0.0.3:80")
	failTimes(g.endpoint(t, "10.0.0.3:80"), DefaultEjectAfter)
	wantUsable(t, g, "the reserve as well", "10.0.0.1:80", "10.0.0.2:80")
}

// Doubtful failures count once nothing else has been seen of the address for a while.
func TestDoubtfulFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, g, m := three(t, Options{})
		all := addresses(3)
		doubt := func(n int) {
			for range n {
				m[0].ReportDoubtful()
			}
		}
		for range 10 {
			doubt(20)
			time.Sleep(doubtTime - time.Second)
			doubt(20)
			m[0].ReportSuccess()
		}
		wantUsable(t, g, "with a success now and then", all...)
		doubt(1)
		time.Sleep(doubtTime)
		doubt(DefaultEjectAfter - 1)
		wantUsable(t, g, "before the last failure", all...)
		doubt(1)
		wantUsable(t, g, "without a success", all[1:]...)
	})
}

// A caller's short deadline that ends a dial is no failure of the address. The time that the proxy
// itself gives a dial is.
func TestDialsCutByTheirCallersDeadlineDoNotCountAgainstTheAddress(t *testing.T) {
	for name, c := range map[string]struct {
		own, timeout time.Duration
		failures     uint64
	}{
		"caller's":           {own: 600 * time.Millisecond, timeout: 3 * time.Second},
		"caller's, but long": {own: 2 * time.Second, timeout: 3 * time.Second, failures: 1},
		"connect timeout":    {own: 3 * time.Second, timeout: 600 * time.Millisecond, failures: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				target := resolving(80, "10.0.0.1", "10.0.0.2")
				target.Dial = silent
				g := makeGroup(t, target, Options{})
				ctx, cancel := context.WithTimeout(t.Context(), c.own)
				defer cancel()
				fail(t, g, ctx, GetOptions{DialTimeout: c.timeout})
				for _, e := range g.Endpoints().Each {
					if e.Failures != c.failures {
						t.Errorf("%s has %d failures, want %d", e.Addr, e.Failures, c.failures)
					}
				}
			})
		})
	}
}

// An endpoint that was ejected because its connections failed is used again soon after it accepts
// one. One that was ejected by statuses is not.
func TestAnEndpointThatAcceptsAgainComesBack(t *testing.T) {
	for name, c := range map[string]struct {
		report func(m *Endpoint)
		back   bool
	}{
		"connections": {(*Endpoint).ReportLost, true},
		"statuses":    {(*Endpoint).ReportFailure, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, g, m := three(t, Options{})
				all := addresses(3)
				w.refuse(true, all[0])
				for range DefaultEjectAfter {
					c.report(m[0])
				}
				time.Sleep(5 * time.Second)
				wantUsable(t, g, "down", all[1:]...)
				w.refuse(false, all[0])
				time.Sleep(1100 * time.Millisecond)
				if c.back {
					wantUsable(t, g, "accepts again", all...)
				} else {
					wantUsable(t, g, "accepts again", all[1:]...)
				}
			})
		})
	}
}

func TestAnAddressThatWorkedIsLostOnce(t *testing.T) {
	for name, after := range map[string]int{"ejected": 0, "never ejected": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lost := 0
				_, _, m := three(t, Options{Eject: Eject{After: after}, OnLost: func() { lost++ }})
				m[0].ReportFailure() // it responded
				for range 2 * DefaultEjectAfter {
					m[0].ReportLost()
				}
				if lost != 0 {
					t.Errorf("%d times lost, and it had failed before", lost)
				}
				for range 2 {
					m[0].ReportSuccess()
					m[0].ReportLost()
					m[0].ReportLost()
				}
				if lost != 2 {
					t.Errorf("%d times lost, want 2", lost)
				}
			})
		})
	}
}
