package proxy

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// keyed gives the default route a rate limit for each value of X-Key.
func keyed(rate string) func(c *Config) {
	return func(c *Config) {
		rationed(rate, 0)(c)
		c.Default.RateLimit.Kind, c.Default.RateLimit.Header = RateLimitHeader, "X-Key"
	}
}

func getFor(path, key string) string {
	return strings.Replace(get(path), "\r\n\r\n", "\r\nX-Key: "+key+"\r\n\r\n", 1)
}

// Each kind, by requests of which the first few have the rate limit of one a minute.
func TestWhoseARateLimitIs(t *testing.T) {
	withRoute := func(kind RateLimitKind, header, other string) func(c *Config) {
		return func(c *Config) {
			rationed("1/m", 0)(c)
			c.Default.RateLimit.Kind, c.Default.RateLimit.Header = kind, header
			r := c.Default
			r.Name, r.Match.Path, r.RateLimit.Header = "r", "/r", other
			c.Routes = []Route{r}
		}
	}
	type step struct {
		request string
		status  int
	}
	for name, tc := range map[string]struct {
		change func(c *Config)
		steps  []step
	}{
		"upstream": {withRoute(RateLimitUpstream, "", ""), []step{{getFor("/", "a"), 200}, {getFor("/", "b"), 429}, {get("/r"), 429}}},
		"route":    {withRoute(RateLimitRoute, "", ""), []step{{getFor("/", "a"), 200}, {getFor("/", "b"), 429}, {get("/r"), 200}, {get("/r"), 429}}},
		"header": {withRoute(RateLimitHeader, "X-Key", "x-key"), []step{
			{getFor("/", "a"), 200}, {getFor("/", "a"), 429}, {getFor("/r", "a"), 429}, {getFor("/", "A"), 200}, {getFor("/", ""), 200}, {getFor("/", ""), 429},
			{get("/"), 200}, {get("/r"), 429}, {get("/"), 429}, {getFor("/r", "b"), 200}, {getFor("/", "b"), 429}}},
		"another header": {withRoute(RateLimitHeader, "X-Key", "X-Other"), []step{{getFor("/", "a"), 200}, {getFor("/r", "a"), 200}, {getFor("/r", "b"), 429}}},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, script(ok200), tc.change, func(t *testing.T, m *memory) {
				for i, s := range tc.steps {
					m.client().send(s.request).want(s.status, "*")
					if i == 0 { // which makes no slots
						if err := m.Reload(m.settings.Load().Config); err != nil {
							t.Fatal(err)
						}
					}
				}
				all := m.Stats().RateLimits
				if len(all) != 1 {
					t.Fatalf("%d rate limits of one upstream and rate: %+v", len(all), all)
				}
				sent := 0
				for _, s := range tc.steps {
					if s.status == 200 {
						sent++
					}
				}
				if q := all[0]; q.State.Own != uint64(sent) || q.Waiting != 0 {
					t.Errorf("%+v, %d were sent", q, sent)
				}
			})
		})
	}
}

// A hedge has its slot of its own key's rate limit.
func TestAHedgeHasTheRateLimitOfItsKey(t *testing.T) {
	inMemory(t, script(ok200), keyed("1/m"), func(t *testing.T, m *memory) {
		m.client().send(getFor("/", "a")).want(200, "ok")
		permit := func(key string) bool {
			x := &exchange{route: m.settings.Load().fallback, req: &http1.Request{}}
			if _, err := x.req.Parse([]byte(getFor("/", key)), http1.Limits{HeaderBytes: 1000, Headers: 10}); err != nil {
				t.Fatal(err)
			}
			_, ok := x.hedgePermit(m.elapsed())
			return ok
		}
		if permit("a") || !permit("b") || permit("b") {
			t.Error("a hedge without a slot, or none where there is one")
		}
	})
}

// crowdedSet has room for a few values.
func crowdedSet(t *testing.T, rate string, most int, wanted func()) *rateLimitSet {
	t.Helper()
	c := testConfig(t, "http://upstream.test:80", &recorder{})
	keyed(rate)(c)
	s := newRateLimitSet(&Server{}, &c.Default, wanted)
	s.most = most
	return s
}

// Whatever values come, of which there is no room for most: no value and not all that have
// none of their own together are let in more often than the rate limit has it, in any time.
// What is forgotten and comes again is no way around that.
func TestNoValueHasMoreThanItsRateLimit(t *testing.T) {
	const most = 20
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 8))
		s := crowdedSet(t, "50/s", most, nil)
		gap := s.rate.Gap()
		let, crowd, forgotten := map[string][]time.Duration{}, []time.Duration(nil), 0
		known := map[uint64]bool{}
		values := most/2 + r.IntN(5*most)
		for now := time.Second; now < 6*time.Second; now += time.Duration(r.ExpFloat64() * float64(time.Millisecond) / 2) {
			value := fmt.Sprint(int(float64(values) * r.Float64() * r.Float64())) // some often, some rarely
			key := hashValue(s.seed, []byte(value))
			if known[key] && s.known(key) == nil {
				forgotten++
				delete(known, key)
			}
			q, e := s.enter(key, &waiter{}, now, 0)
			switch {
			case e.word != decisionAdmit:
			case q == s.others:
				crowd = append(crowd, now)
			default:
				let[value] = append(let[value], now)
			}
			known[key] = q != s.others
		}
		let["(beyond)"] = crowd
		for value, at := range let {
			for i := range at {
				for j := i; j < len(at); j++ {
					if limit := float64(at[j]-at[i]+50*time.Millisecond)/float64(gap) + 1; float64(j-i+1) > limit+1e-6 {
						t.Fatalf("seed %d, value %s: %d within %v", seed, value, j-i+1, at[j]-at[i])
					}
				}
			}
		}
		if len(s.ring) > most || len(s.doors) != len(s.ring) || values > 2*most && (len(crowd) == 0 || forgotten == 0) {
			t.Errorf("seed %d: %d doors and %d in the ring of %d values, %d let in beyond, %d forgotten", seed, len(s.doors), len(s.ring), values, len(crowd), forgotten)
		}
		if n := s.stats(); n.Keys > most || n.State.Own != uint64(count(let)) {
			t.Errorf("seed %d: %+v, %d let in", seed, n, count(let))
		}
	}
}

func count(let map[string][]time.Duration) (n int) {
	for _, at := range let {
		n += len(at)
	}
	return n
}

// A value in use keeps its rate limit, whatever flood of made-up ones comes.
func TestAFloodOfValuesDoesNotDriveOutOneInUse(t *testing.T) {
	s := crowdedSet(t, "100/s", 16, nil)
	key, served := hashValue(s.seed, []byte("in use")), 0
	crowd := 0
	for ms := range 2000 {
		now := time.Second + time.Duration(ms)*time.Millisecond
		if ms%10 == 0 {
			q, e := s.enter(key, &waiter{}, now, 0)
			if q == s.others {
				t.Fatal("driven out")
			}
			if e.word == decisionAdmit {
				served++
			}
		}
		for i := range 10 {
			q, e := s.enter(hashValue(s.seed, fmt.Appendf(nil, "%d %d", ms, i)), &waiter{}, now, 0)
			if q == s.others && e.word == decisionAdmit {
				crowd++
			}
		}
	}
	if served < 190 {
		t.Errorf("%d of 200 served", served)
	}
	if crowd < 150 || crowd > 2*100+10 {
		t.Errorf("%d of those beyond, want one rate limit's worth, 200", crowd)
	}
}

// In a fleet a value is remembered while there is anything to tell of it, and asked about
// as long as that is so.
func TestAValueIsForgottenOnceAllIsTold(t *testing.T) {
	s := crowdedSet(t, "100/s", 1, func() {})
	a, b := hashValue(s.seed, []byte("a")), hashValue(s.seed, []byte("b"))
	now := time.Second
	q, e := s.enter(a, &waiter{}, now, 0) // which does not wait, as nobody is there to be told
	if e.word != decisionDropped || q == s.others {
		t.Fatalf("%+v", e)
	}
	if other, _ := s.enter(b, &waiter{}, now, 0); other != s.others {
		t.Error("forgotten before it was asked about")
	}
	asks, _ := s.ask(nil, now)
	if !slices.ContainsFunc(asks, func(one policy.RateLimitLeaseRequest) bool { return one.Key == a }) {
		t.Fatalf("%+v", asks)
	}
	q.mu.Lock()
	q.rateLimit.ApplyGrant(now, policy.RateLimitLeaseGrant{Slots: 1}) // which nobody waits for
	q.enlist()
	q.mu.Unlock()
	told := 0
	for ; now < 3*time.Second; now += 10 * time.Millisecond {
		asks, _ = s.ask(asks[:0], now)
		for _, one := range asks {
			if one.Key == a {
				told += one.Charge
			}
		}
	}
	if told != -1 || len(s.busy) != 0 {
		t.Errorf("%d slots told, want the one back that expired; %d doors busy", told, len(s.busy))
	}
	if other, _ := s.enter(b, &waiter{}, now, 0); other == s.others || s.known(a) != nil {
		t.Error("not forgotten")
	}
}

// Many values that are busy ask the more rarely, the more they and the processes are.
func TestManyValuesAskRarely(t *testing.T) {
	s := crowdedSet(t, "100/s", MaxRateLimitKeys, func() {})
	s.share(50)
	every := func(values int) time.Duration {
		for i := range values {
			s.enter(uint64(1000+i), &waiter{}, time.Second, 0)
		}
		asks, _ := s.ask(nil, time.Second)
		if len(asks) == 0 || asks[0].Share != 50*s.rate.Gap() {
			t.Fatalf("%d questions: %+v", len(asks), asks)
		}
		return asks[len(asks)-1].Every
	}
	if d := every(1); d != 0 {
		t.Errorf("one asks every %v", d)
	}
	if d, want := every(90), 90*50*(time.Second/policy.LedgerRequestsPerSecond); d != want {
		t.Errorf("ninety ask every %v, want %v", d, want)
	}
}

// A queue that is retired between being found and being entered is not used.
func TestARetiredDoorLetsNobodyIn(t *testing.T) {
	s := crowdedSet(t, "100/s", 1, nil)
	now := time.Second
	old, _ := s.enter(1, &waiter{}, now, 0)
	now += time.Second
	next, _ := s.enter(2, &waiter{}, now, 0)
	if _, ok := old.enter(&waiter{}, now, 0); ok || old.takeNow(now) || next == s.others {
		t.Error("let in")
	}
	old.giveBack(now)
	if n := s.stats().State.Own; n != 2 {
		t.Errorf("%d slots counted", n)
	}
}

// A request of a value that is remembered costs no memory, however long the value.
func TestAKnownValueTakesNoMemory(t *testing.T) {
	s := crowdedSet(t, "10000/s", MaxRateLimitKeys, nil)
	value, now := []byte(strings.Repeat("v", 3000)), time.Second
	w := &waiter{}
	s.enter(hashValue(s.seed, value), w, now, 0)
	if n := testing.AllocsPerRun(1000, func() {
		now += time.Millisecond
		if _, e := s.enter(hashValue(s.seed, value), w, now, 0); e.word != decisionAdmit {
			t.Fatal("no slot")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if hashValue(s.seed, value) == hashValue(s.seed, value[:2999]) || hashValue(s.seed, value[:480]) == hashValue(s.seed, value[:481]) {
		t.Error("two values, one key")
	}
}

// MaxQuotaKeys says how much a value takes.
func TestMemoryOfValues(t *testing.T) {
	s := crowdedSet(t, "10/s", MaxRateLimitKeys, func() {})
	used := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // the first takes from sync.Pools what the second frees
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := used()
	for i := range uint64(MaxRateLimitKeys) {
		s.queueOf(1000+i, 0)
	}
	each := float64(used()-before) / MaxRateLimitKeys
	t.Logf("%.0f bytes", each)
	if len(s.ring) != MaxRateLimitKeys || each > 700 {
		t.Errorf("%d keys of %.0f bytes each", len(s.ring), each)
	}
	runtime.KeepAlive(s)
}
