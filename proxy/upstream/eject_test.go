package upstream

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// used are the addresses that requests go to.
func used(g *Group) (all []string) {
	for _, m := range g.view.Load().usable {
		all = append(all, m.addr)
	}
	slices.Sort(all)
	return all
}

func wantUsed(t *testing.T, g *Group, when string, want ...string) {
	t.Helper()
	if got := used(g); !slices.Equal(got, want) {
		t.Errorf("%s: used are %v, want %v", when, got, want)
	}
}

// three addresses, looked up.
func three(t *testing.T, o Options) (*town, *Group, [3]*Member) {
	t.Helper()
	w := newTown(t, 0, many(3)...)
	g := w.group(o)
	get(t, g, GetOptions{}).Release(0)
	var m [3]*Member
	for i := range m {
		m[i] = g.member(t, many(3)[i])
	}
	return w, g, m
}

func failTimes(m *Member, n int) {
	for range n {
		m.Failed()
	}
}

func TestFailuresInARowEjectForLongerEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, g, m := three(t, Options{})
		all := many(3)
		failTimes(m[0], DefaultEjectAfter-1)
		wantUsed(t, g, "before the last failure", all...)
		m[0].Answered()
		failTimes(m[0], DefaultEjectAfter-1)
		wantUsed(t, g, "the row was broken", all...)
		m[0].Failed()
		wantUsed(t, g, "ejected", all[1:]...)
		for times := 1; times <= 12; times++ {
			lasts := time.Duration(min(times, 10)) * DefaultEjectFor
			time.Sleep(lasts - time.Second)
			wantUsed(t, g, "a second too early", all[1:]...)
			time.Sleep(2 * time.Second)
			wantUsed(t, g, "back", all...)
			m[0].Failed() // one is enough
			wantUsed(t, g, "ejected again", all[1:]...)
		}
	})
}

func TestEjectionsAreForgiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, g, m := three(t, Options{EjectFor: 10 * time.Second, EjectAfter: 1})
		m[0].Failed()
		time.Sleep(11 * time.Second)
		m[0].Failed() // the second time: 20 s
		time.Sleep(20*time.Second + 30*time.Second)
		m[0].Failed() // both forgiven
		time.Sleep(9 * time.Second)
		wantUsed(t, g, "ejected", many(3)[1:]...)
		time.Sleep(2 * time.Second)
		wantUsed(t, g, "back after the first time's length", many(3)...)
	})
}

func TestAnAnswerEndsAnEjection(t *testing.T) {
	for _, after := range []int{1, 5} {
		_, g, m := three(t, Options{EjectAfter: after})
		failTimes(m[0], after)
		wantUsed(t, g, "ejected", many(3)[1:]...)
		m[0].Answered()
		wantUsed(t, g, "answered", many(3)...)
	}
}

func TestWhenMoreThanHalfWouldBeEjectedAllAreUsed(t *testing.T) {
	for n, c := range map[int]struct{ ejected, left int }{1: {1, 1}, 2: {1, 1}, 3: {1, 2}, 4: {2, 2}, 5: {2, 3}} {
		w := newTown(t, 0, many(n)...)
		g := w.group(Options{})
		get(t, g, GetOptions{}).Release(0)
		for i, addr := range many(n) {
			failTimes(g.member(t, addr), DefaultEjectAfter)
			want := many(n)
			if i < c.ejected && n > 1 {
				want = want[i+1:]
			}
			if wantUsed(t, g, "", want...); i == c.ejected-1 && len(used(g)) != c.left {
				t.Errorf("of %d, %d ejected, %d are used", n, i+1, len(used(g)))
			}
		}
	}
}

func TestDialsThatFailEject(t *testing.T) {
	w, g, m := three(t, Options{})
	w.refuse(true, m[1].addr)
	for range 200 {
		c := get(t, g, GetOptions{Fresh: true})
		c.Member.Answered()
		c.Release(0)
	}
	wantUsed(t, g, "", m[0].addr, m[2].addr)
	if n := m[1].failed.Load(); n != DefaultEjectAfter {
		t.Errorf("dialled %d times in vain", n)
	}
	if a := g.Addresses(); a.Ejected != 1 || a.Used != 2 {
		t.Errorf("%+v", a)
	}
}

func TestEjectionCanBeOff(t *testing.T) {
	_, g, m := three(t, Options{EjectAfter: -1})
	failTimes(m[0], 100)
	wantUsed(t, g, "", many(3)...)
}

func TestOnlyAnEjectedAddressIsLeft(t *testing.T) {
	w, g, m := three(t, Options{})
	failTimes(m[0], DefaultEjectAfter)
	w.refuse(true, m[1].addr, m[2].addr)
	if c := get(t, g, GetOptions{Fresh: true}); c.Addr != m[0].addr {
		t.Errorf("reached %s", c.Addr)
	}
}

func TestPriorityGivesWayWhenItsAddressesAreEjected(t *testing.T) {
	w := newTown(t, 0)
	w.said.places = []place{{"10.0.0.3:80", 2, 1}, {"10.0.0.1:80", 1, 1}, {"10.0.0.2:80", 1, 1}}
	g := w.group(Options{})
	get(t, g, GetOptions{}).Release(0)
	failTimes(g.member(t, "10.0.0.1:80"), DefaultEjectAfter)
	wantUsed(t, g, "one of two", "10.0.0.2:80")
	failTimes(g.member(t, "10.0.0.2:80"), DefaultEjectAfter)
	wantUsed(t, g, "both", "10.0.0.3:80")
	failTimes(g.member(t, "10.0.0.3:80"), DefaultEjectAfter)
	wantUsed(t, g, "the reserve as well", "10.0.0.1:80", "10.0.0.2:80")
}
