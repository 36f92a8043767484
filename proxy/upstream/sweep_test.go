package upstream

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestKeepAliveLimitIsASecondLess(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		time.Second: 500 * time.Millisecond, 2 * time.Second: time.Second, 5 * time.Second: 4 * time.Second,
		time.Hour: time.Hour - time.Second, 1500 * time.Millisecond: 750 * time.Millisecond,
	} {
		if got := keepAliveLimit(timeout); got != want {
			t.Errorf("timeout %v: %v, want %v", timeout, got, want)
		}
	}
}

func TestIdleAgeObeysEveryLimit(t *testing.T) {
	for _, c := range []struct {
		name      string
		options   Options
		keepAlive time.Duration
		maxIdle   time.Duration
		limit     time.Duration // reused at it, not a millisecond later
		stays     bool          // when too old for this request, another may have it
	}{
		{name: "the default", limit: 55 * time.Second},
		{name: "the option", options: Options{IdleAge: 7 * time.Second}, limit: 7 * time.Second},
		{name: "Keep-Alive less 1 s", keepAlive: 5 * time.Second, limit: 4 * time.Second},
		{name: "Keep-Alive does not raise it", keepAlive: time.Hour, limit: 55 * time.Second},
		{name: "the request", maxIdle: 1500 * time.Millisecond, limit: 1500 * time.Millisecond, stays: true},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, late %v", c.name, late), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var made []*memoryConn
					p := makePool(t, inMemory(t, &made), c.options)
					conn := get(t, p, GetOptions{})
					conn.Release(c.keepAlive)
					time.Sleep(c.limit)
					if late {
						time.Sleep(time.Millisecond)
					}
					got := p.TryPooled(&GetOptions{MaxIdle: c.maxIdle})
					if (got == conn) == late {
						t.Fatalf("given: %v, too old: %v", got == conn, late)
					}
					if s := p.Stats(); late && ((s.Idle == 1) != c.stays || s.Active != 0) || s.IdleCloses != 0 {
						t.Fatalf("%+v", s)
					}
					if err := made[0].SetDeadline(time.Time{}); late && !c.stays && err == nil {
						t.Fatal("the old connection is still open")
					}
				})
			})
		}
	}
}

func TestAnAnnouncedTimeoutIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made []*memoryConn
		p := makePool(t, inMemory(t, &made), Options{})
		c := get(t, p, GetOptions{})
		c.Release(5 * time.Second)
		get(t, p, GetOptions{}).Release(0)
		time.Sleep(4*time.Second + time.Millisecond)
		if p.TryPooled(&GetOptions{}) != nil {
			t.Fatal("the timeout said before was forgotten")
		}
	})
}

func TestEvenTheYoungestConnectionIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made []*memoryConn
		p := makePool(t, inMemory(t, &made), Options{})
		c := get(t, p, GetOptions{})
		made[0].hangUp()
		c.Release(0)
		if p.TryPooled(&GetOptions{}) != nil {
			t.Fatal("handed out unseen")
		}
	})
}

func TestSweepKeepsOrderAndTheOpenOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made []*memoryConn
		p := makePool(t, inMemory(t, &made), Options{})
		var conns []*Conn
		for range 3*sweepStep + 1 {
			conns = append(conns, get(t, p, GetOptions{}))
		}
		for i, c := range conns {
			if i%3 == 0 {
				made[i].hangUp()
			}
			c.Release(0)
		}
		time.Sleep(sweepPeriod + time.Millisecond)
		if s := p.Stats(); s.Idle != 2*sweepStep || s.IdleCloses != sweepStep+1 {
			t.Fatalf("after the sweep: %+v", s)
		}
		for i := len(conns) - 1; i >= 0; i-- {
			if i%3 == 0 {
				continue
			}
			if c := p.TryPooled(&GetOptions{}); c != conns[i] {
				t.Fatalf("connection %d was not the next", i)
			}
		}
		if s := p.Stats(); s.Idle != 0 || s.IdleCloses != sweepStep+1 {
			t.Fatalf("%+v", s)
		}
	})
}

func TestSweepClosesTheOldAndThenRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made []*memoryConn
		p := makePool(t, inMemory(t, &made), Options{IdleAge: 3 * time.Second})
		get(t, p, GetOptions{}).Release(0)
		time.Sleep(3500 * time.Millisecond)
		if s := p.Stats(); s.Idle != 1 { // the sweep at 3 s is not too early
			t.Fatalf("%+v", s)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s := p.Stats(); s.Idle != 0 || p.sweeping {
			t.Fatalf("%+v, sweeping %v", s, p.sweeping)
		}
		if _, err := made[0].Write([]byte("x")); err == nil {
			t.Fatal("the old connection is still open")
		}
		get(t, p, GetOptions{}).Release(0)
		if !p.sweeping {
			t.Fatal("the sweep does not come back")
		}
	})
}

func TestCloseStopsTheSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made []*memoryConn
		p := makePool(t, inMemory(t, &made), Options{})
		get(t, p, GetOptions{}).Release(0)
		p.Close()
		if p.timer.Stop() {
			t.Fatal("the timer still ran")
		}
	})
}

// A pool whose connections stay idle is woken ever more seldom, and soon again after a release.
func TestTheSweepBacksOffWhileNothingHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made []*memoryConn
		p := makePool(t, inMemory(t, &made), Options{IdleAge: time.Hour})
		nextSweep := func(after time.Duration) time.Duration {
			time.Sleep(after)
			synctest.Wait()
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.sweepAfter
		}
		first, second := get(t, p, GetOptions{}), get(t, p, GetOptions{})
		first.Release(0)
		if d := nextSweep(sweepPeriod + time.Millisecond); d != 2*sweepPeriod {
			t.Errorf("swept after %v, with a connection idle for a second", d)
		}
		if d := nextSweep(time.Minute); d != 54*time.Second {
			t.Errorf("swept after %v, with a connection idle for a minute", d)
		}
		second.Release(0)
		if d := nextSweep(time.Millisecond); d != sweepPeriod {
			t.Errorf("swept after %v behind a release", d)
		}
		made[0].hangUp()
		nextSweep(2 * sweepPeriod)
		if s := p.Stats(); s.Idle != 1 || s.IdleCloses != 1 {
			t.Errorf("a closed connection stays: %+v", s)
		}
	})
}

// However long a connection has been idle, it is closed within a second of the time that it may be kept.
func TestTheSweepIsInTimeForTheOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made []*memoryConn
		p := makePool(t, inMemory(t, &made), Options{})
		get(t, p, GetOptions{}).Release(0)
		time.Sleep(DefaultIdleAge + sweepPeriod + time.Millisecond)
		synctest.Wait()
		if s := p.Stats(); s.Idle != 0 {
			t.Errorf("kept for longer than %v: %+v", DefaultIdleAge, s)
		}
	})
}
