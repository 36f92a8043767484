package admission

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

// keyOf is the key of the requests with this value.
func keyOf(seed [sha256.Size]byte, value []byte) uint64 {
	seed = Hash(seed, value)
	return binary.BigEndian.Uint64(seed[:])
}

// crowdedSet has room for a few values.
func crowdedSet(t *testing.T, rate string, most int, wanted func()) *RateLimits {
	t.Helper()
	r, err := ratelimit.ParseRate(rate)
	if err != nil {
		t.Fatal(err)
	}
	l := RateLimit{Rate: r, SharedBy: Sharing{Header: "X-Key"}}
	s := NewRateLimits("http://upstream.test:80", "", l, 1, func() time.Duration { return time.Second }, wanted)
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
		gap := s.limit.Rate.Gap()
		let, crowd, forgotten := map[string][]time.Duration{}, []time.Duration(nil), 0
		known := map[uint64]bool{}
		values := most/2 + r.IntN(5*most)
		for now := time.Second; now < 6*time.Second; now += time.Duration(r.ExpFloat64() * float64(time.Millisecond) / 2) {
			value := fmt.Sprint(int(float64(values) * r.Float64() * r.Float64())) // some often, some rarely
			key := keyOf(s.seed, []byte(value))
			if known[key] && s.Known(key) == nil {
				forgotten++
				delete(known, key)
			}
			q, e := s.Enter(key, &Waiter{}, now, 0)
			switch {
			case e.Decision != Admit:
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
		if len(s.ring) > most || len(s.queues) != len(s.ring) || values > 2*most && (len(crowd) == 0 || forgotten == 0) {
			t.Errorf("seed %d: %d doors and %d in the ring of %d values, %d let in beyond, %d forgotten", seed, len(s.queues), len(s.ring), values, len(crowd), forgotten)
		}
		if n := s.Stats(); n.Keys > most || n.State.Own != uint64(count(let)) {
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
	key, served := keyOf(s.seed, []byte("in use")), 0
	crowd := 0
	for ms := range 2000 {
		now := time.Second + time.Duration(ms)*time.Millisecond
		if ms%10 == 0 {
			q, e := s.Enter(key, &Waiter{}, now, 0)
			if q == s.others {
				t.Fatal("driven out")
			}
			if e.Decision == Admit {
				served++
			}
		}
		for i := range 10 {
			q, e := s.Enter(keyOf(s.seed, fmt.Appendf(nil, "%d %d", ms, i)), &Waiter{}, now, 0)
			if q == s.others && e.Decision == Admit {
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
	a, b := keyOf(s.seed, []byte("a")), keyOf(s.seed, []byte("b"))
	now := time.Second
	q, e := s.Enter(a, &Waiter{}, now, 0) // which does not wait, as nobody is there to be told
	if e.Decision != Dropped || q == s.others {
		t.Fatalf("%+v", e)
	}
	if other, _ := s.Enter(b, &Waiter{}, now, 0); other != s.others {
		t.Error("forgotten before it was asked about")
	}
	asks, _ := s.Ask(nil, now)
	if !slices.ContainsFunc(asks, func(one ratelimit.LeaseRequest) bool { return one.Key == a }) {
		t.Fatalf("%+v", asks)
	}
	q.mu.Lock()
	q.rateLimit.ApplyGrant(now, ratelimit.LeaseGrant{Slots: 1}) // which nobody waits for
	q.enlist()
	q.mu.Unlock()
	told := 0
	for ; now < 3*time.Second; now += 10 * time.Millisecond {
		asks, _ = s.Ask(asks[:0], now)
		for _, one := range asks {
			if one.Key == a {
				told += one.Charge
			}
		}
	}
	if told != -1 || len(s.busy) != 0 {
		t.Errorf("%d slots told, want the one back that expired; %d doors busy", told, len(s.busy))
	}
	if other, _ := s.Enter(b, &Waiter{}, now, 0); other == s.others || s.Known(a) != nil {
		t.Error("not forgotten")
	}
}

// Many values that are busy ask the more rarely, the more they and the processes are.
func TestManyValuesAskRarely(t *testing.T) {
	s := crowdedSet(t, "100/s", MaxRateLimitKeys, func() {})
	s.Share(50)
	every := func(values int) time.Duration {
		for i := range values {
			s.Enter(uint64(1000+i), &Waiter{}, time.Second, 0)
		}
		asks, _ := s.Ask(nil, time.Second)
		if len(asks) == 0 || asks[0].Share != 50*s.limit.Rate.Gap() {
			t.Fatalf("%d questions: %+v", len(asks), asks)
		}
		return asks[len(asks)-1].Every
	}
	if d := every(1); d != 0 {
		t.Errorf("one asks every %v", d)
	}
	if d, want := every(90), 90*50*(time.Second/ratelimit.LedgerRequestsPerSecond); d != want {
		t.Errorf("ninety ask every %v, want %v", d, want)
	}
}

// A queue that is retired between being found and being entered is not used.
func TestARetiredDoorLetsNobodyIn(t *testing.T) {
	s := crowdedSet(t, "100/s", 1, nil)
	now := time.Second
	old, _ := s.Enter(1, &Waiter{}, now, 0)
	now += time.Second
	next, _ := s.Enter(2, &Waiter{}, now, 0)
	if _, ok := old.enter(&Waiter{}, now, 0); ok || old.TakeNow(now, nil) || next == s.others {
		t.Error("let in")
	}
	old.GiveBack(now, nil)
	if n := s.Stats().State.Own; n != 2 {
		t.Errorf("%d slots counted", n)
	}
}

// A request of a value that is remembered costs no memory, however long the value.
func TestAKnownValueTakesNoMemory(t *testing.T) {
	s := crowdedSet(t, "10000/s", MaxRateLimitKeys, nil)
	value, now := []byte(strings.Repeat("v", 3000)), time.Second
	w := &Waiter{}
	s.Enter(keyOf(s.seed, value), w, now, 0)
	if n := testing.AllocsPerRun(1000, func() {
		now += time.Millisecond
		if _, e := s.Enter(keyOf(s.seed, value), w, now, 0); e.Decision != Admit {
			t.Fatal("no slot")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if keyOf(s.seed, value) == keyOf(s.seed, value[:2999]) || keyOf(s.seed, value[:480]) == keyOf(s.seed, value[:481]) {
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
		s.QueueOf(1000+i, 0)
	}
	each := float64(used()-before) / MaxRateLimitKeys
	t.Logf("%.0f bytes", each)
	if len(s.ring) != MaxRateLimitKeys || each > 700 {
		t.Errorf("%d keys of %.0f bytes each", len(s.ring), each)
	}
	runtime.KeepAlive(s)
}
