package upstream

import (
	"fmt"
	"math/rand/v2"
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

func TestIdleTimeoutIsLearnedFromTwoCloses(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name string
		seen [][2]time.Duration // pool time, age
		at   time.Duration
		want time.Duration
	}{
		{"nothing seen", nil, 100 * s, 55 * s},
		{"one close teaches nothing alone", [][2]time.Duration{{10 * s, 5 * s}}, 10 * s, 55 * s},
		{"a restart is one close", [][2]time.Duration{{10 * s, 5 * s}, {10 * s, 2 * s}, {10*s + 900*time.Millisecond, 3 * s}}, 11 * s, 55 * s},
		{"two at the same age", [][2]time.Duration{{10 * s, 5 * s}, {20 * s, 5 * s}}, 20 * s, 3500 * time.Millisecond},
		{"the higher of two", [][2]time.Duration{{10 * s, 2 * s}, {20 * s, 5 * s}}, 20 * s, 3500 * time.Millisecond},
		{"an old outlier is forgotten", [][2]time.Duration{{10 * s, 30 * s}, {20 * s, 5 * s}, {30 * s, 5 * s}}, 30 * s, 3500 * time.Millisecond},
		{"the highest of a batch", [][2]time.Duration{{10 * s, 5 * s}, {20 * s, 2 * s}, {20 * s, 6 * s}, {20 * s, 3 * s}}, 20 * s, 4500 * time.Millisecond},
		{"young closes teach nothing", [][2]time.Duration{{10 * s, s / 4}, {20 * s, s / 4}}, 20 * s, 55 * s},
		{"never below the floor", [][2]time.Duration{{10 * s, s}, {20 * s, s}}, 20 * s, s / 2},
		{"never above the limit", [][2]time.Duration{{100 * s, 80 * s}, {200 * s, 80 * s}}, 200 * s, 55 * s},
		{"doubled after 10 minutes", [][2]time.Duration{{10 * s, 5 * s}, {20 * s, 5 * s}}, 620 * s, 7 * s},
		{"half way after 5", [][2]time.Duration{{10 * s, 5 * s}, {20 * s, 5 * s}}, 320 * s, 5250 * time.Millisecond},
		{"twice doubled after 20", [][2]time.Duration{{10 * s, 5 * s}, {20 * s, 5 * s}}, 1220 * s, 14 * s},
		{"forgotten in the end", [][2]time.Duration{{10 * s, 5 * s}, {20 * s, 5 * s}}, 100 * time.Hour, 55 * s},
	} {
		p := idleTimeoutLearner{max: 55 * s}
		for _, o := range c.seen {
			p.observe(o[0], o[1])
		}
		if got := p.limit(c.at); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// Whatever is observed, the limit stays within its bounds and only grows
// while nothing is observed.
func TestLearnedIdleTimeoutStaysInBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		p := idleTimeoutLearner{max: time.Duration(1+r.Int64N(120)) * time.Second}
		now := time.Duration(0)
		for range 20 {
			now += time.Duration(r.Int64N(int64(20 * time.Minute)))
			p.observe(now, time.Duration(r.Int64N(int64(2*p.max))))
			before := p.limit(now)
			for range 5 {
				l := p.limit(now)
				if l < ageFloor || l > p.max || l < before {
					t.Fatalf("limit %v after %v, max %v", l, before, p.max)
				}
				before = l
				now += time.Duration(r.Int64N(int64(time.Minute)))
			}
		}
	}
}

// ExampleNewPool_idleAge shows what a pool makes of an upstream that closes
// idle connections after 5 s without announcing it.
func ExampleNewPool_idleAge() {
	p := idleTimeoutLearner{max: DefaultIdleAge}
	show := func(what string, now time.Duration) { fmt.Printf("%-28s %v\n", what, p.limit(now)) }
	show("nothing seen", 0)
	p.observe(10*time.Second, 5200*time.Millisecond)
	show("one close, idle for 5.2s", 10*time.Second)
	p.observe(20*time.Second, 5*time.Second)
	show("a second one, idle for 5s", 20*time.Second)
	show("5 minutes later", 320*time.Second)
	show("10 minutes later", 620*time.Second)
	p.observe(700*time.Second, 5*time.Second)
	show("again one, idle for 5s", 700*time.Second)
	// Output:
	// nothing seen                 55s
	// one close, idle for 5.2s     55s
	// a second one, idle for 5s    3.7s
	// 5 minutes later              5.55s
	// 10 minutes later             7.4s
	// again one, idle for 5s       3.5s
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

// An upstream closes after 5 s idle. The sweep notices, the pool learns, and
// then closes first.
func TestPoolLearnsTheUpstreamsIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made []*memoryConn
		p := makePool(t, inMemory(t, &made), Options{})
		for range 2 {
			get(t, p, GetOptions{}).Release(0)
			time.Sleep(5*time.Second + 100*time.Millisecond)
			made[len(made)-1].hangUp()
			time.Sleep(sweepPeriod)
			if s := p.Stats(); s.Idle != 0 {
				t.Fatalf("the sweep did not notice: %+v", s)
			}
		}
		s := p.Stats()
		if s.IdleCloses != 2 || s.IdleLimit < 3500*time.Millisecond || s.IdleLimit > 5*time.Second {
			t.Fatalf("learned %v from %d closes", s.IdleLimit, s.IdleCloses)
		}
		get(t, p, GetOptions{}).Release(0)
		time.Sleep(5 * time.Second)
		if c := p.TryPooled(&GetOptions{}); c != nil || p.Stats().IdleCloses != 2 {
			t.Fatalf("the connection was used when the upstream closes it: %+v", p.Stats())
		}
	})
}

// A close noticed between two sweeps, when the connection is wanted.
func TestCheckBeforeUseTeachesIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made []*memoryConn
		p := makePool(t, inMemory(t, &made), Options{})
		for range 2 {
			time.Sleep(time.Minute)
			get(t, p, GetOptions{}).Release(0)
			made[len(made)-1].hangUp()
			time.Sleep(700 * time.Millisecond)
			if p.TryPooled(&GetOptions{}) != nil {
				t.Fatal("a closed connection was given out")
			}
		}
		if s := p.Stats(); s.IdleLimit != ageFloor {
			t.Fatalf("learned %v from closes at an age of 700 ms", s.IdleLimit)
		}
	})
}

// The loop found the close itself, having written to the connection.
func TestCloseStaleTeachesIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made []*memoryConn
		p := makePool(t, inMemory(t, &made), Options{})
		for range 2 {
			get(t, p, GetOptions{}).Release(0)
			time.Sleep(5 * time.Second)
			c := p.TryPooled(&GetOptions{})
			time.Sleep(time.Minute) // not idle time
			c.CloseStale()
		}
		if s := p.Stats(); s.IdleLimit != 3500*time.Millisecond || s.IdleCloses != 2 {
			t.Fatalf("%+v", s)
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

// A pool whose connections stay idle is woken ever more seldom, and soon again after a release. What a late look finds closed
// counts as closed right after the look before.
func TestTheSweepBacksOffWhileNothingHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made []*memoryConn
		p := makePool(t, inMemory(t, &made), Options{IdleAge: time.Hour})
		sweeps := func(d time.Duration) (n int) {
			p.mu.Lock()
			last := p.sweptAt
			p.mu.Unlock()
			for end := time.Now().Add(d); time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
				p.mu.Lock()
				if p.sweptAt != last {
					last = p.sweptAt
					n++
				}
				p.mu.Unlock()
			}
			return n
		}
		first, second := get(t, p, GetOptions{}), get(t, p, GetOptions{})
		first.Release(0)
		if n := sweeps(8500 * time.Millisecond); n != 8 {
			t.Errorf("%d sweeps in the first eight seconds", n)
		}
		sweeps(52 * time.Second)
		if n := sweeps(time.Minute); n < 3 || n > 8 {
			t.Errorf("%d sweeps in the second minute", n)
		}
		second.Release(0)
		if n := sweeps(2100 * time.Millisecond); n != 2 {
			t.Errorf("%d sweeps in two seconds after a release", n)
		}
		second = p.TryPooled(&GetOptions{})
		second.Close()
		sweeps(20 * time.Second)
		for sweeps(10*time.Millisecond) == 0 {
		}
		p.mu.Lock()
		age := p.sweptAt - p.idle[0].releasedAt
		p.mu.Unlock()
		made[0].hangUp()
		sweeps(time.Minute)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.idleTimeout.last < age || p.idleTimeout.last > age+2*sweepPeriod {
			t.Errorf("learned an age of %v, it was %v", p.idleTimeout.last, age)
		}
	})
}
