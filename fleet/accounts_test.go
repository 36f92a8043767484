package fleet

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/fleet/enginetest"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

// tell sends an account and waits for the balance.
func (p *process) tell(key uint64, a ratelimit.Account) *ratelimit.Balance {
	p.t.Helper()
	g, ok := p.requestLease(ratelimit.LeaseRequest{Key: key, Account: &a})
	if !ok || g.Balance == nil {
		p.t.Fatal("no balance")
	}
	return g.Balance
}

// The script follows the rules of type Buckets. Time passes between the calls, so the levels may
// differ by what is replenished in that time.
func TestTheScriptIsTheBuckets(t *testing.T) {
	p := joined(t, enginetest.Start(t))
	r := rand.New(rand.NewPCG(3, 4))
	for _, model := range []ratelimit.Model{ratelimit.Refilling, ratelimit.Windowed} {
		var mirror, client ratelimit.Buckets // the expected state of the engine, and the process's own
		key, began, granted := uint64(model)+50, time.Now(), 0
		learnt := false
		const limit, rate = 1000.0, 50.0
		var sent, clients []ratelimit.Stamp
		for step := range 150 {
			c := ratelimit.Cost{Input: int64(r.IntN(30)), Output: int64(r.IntN(100))}
			a := ratelimit.Account{Probe: time.Hour, Next: &c}
			if n := int64(r.IntN(3) - 1); n != 0 {
				a.Sent.Add(n, c)
			}
			if len(sent) > 0 && r.IntN(2) == 0 {
				left := float64(r.IntN(limit))
				reading := ratelimit.Reading{Row: 3, Kind: ratelimit.Tokens, Model: model, Limit: limit, Remaining: left, Reset: time.Duration((limit - left) / rate * 1e9)}
				o := ratelimit.Observation{Reading: reading, Stamp: clients[len(clients)-1], Rejected: r.IntN(8) == 0}
				o.Took = o.Stamp.Since(time.Since(began))
				a.Learnt = append(a.Learnt, o)
			}
			before := time.Since(began)
			b := p.tell(key, a)
			now := time.Since(began)
			client.Import(now, b)
			for range max(a.Sent.Attempts, 0) {
				mirror.Take(now, c)
			}
			for range max(-a.Sent.Attempts, 0) {
				mirror.GiveBack(now, c)
			}
			for _, o := range a.Learnt {
				mirror.Learn(now, &sent[len(sent)-1], o.Reading, o.Rejected)
			}
			if len(a.Learnt) > 0 && !learnt { // the engine does not know what was sent before there was a limit
				learnt = true
				mirror.Import(now, b)
				continue
			}
			may := mirror.Ready(now, c)
			if b.Granted {
				granted++
				sent, clients = append(sent, mirror.Take(now, c)), append(clients, client.Granted(now))
			}
			want, _, known := mirror.Level(now, 3)
			got, _, alsoKnown := client.Level(now, 3)
			near := 10 + rate*3*(now-before).Seconds() // of 1000; what was let pass in earlier steps adds up
			if known != alsoKnown || math.Abs(want-got) > near && b.Granted == may {
				t.Fatalf("model %d, step %d: the engine has %v (%v), Buckets %v (%v); granted %v, ready %v", model, step, got, alsoKnown, want, known, b.Granted, may)
			}
			if b.Granted != may || math.Abs(want-got) > 1 { // within what the passing time explains: continue with the engine's result
				mirror.Import(now, b)
			}
		}
		if granted == 0 {
			t.Error("nothing was granted")
		}
	}
}

// So it does with a configured limit: what attempts used instead of the expected cost is the same in
// both, and no process gets more than that.
func TestTheScriptSettlesAsTheBucketsDo(t *testing.T) {
	p := joined(t, enginetest.Start(t))
	r := rand.New(rand.NewPCG(5, 6))
	fixed := ratelimit.Rate{Count: 1000, Per: time.Hour}
	var mirror ratelimit.Buckets
	mirror.Limit(fixed, 0)
	var inFlight []ratelimit.Cost
	granted, used := 0, int64(0)
	for step := range 150 {
		next := ratelimit.Cost{Input: int64(r.IntN(30)), Output: int64(r.IntN(1500))}.AtMost(fixed.Count)
		a := ratelimit.Account{Fixed: fixed, Next: &next}
		if len(inFlight) > 0 && r.IntN(2) == 0 {
			c := inFlight[0]
			inFlight = inFlight[1:]
			if r.IntN(3) == 0 {
				a.Sent.Add(-1, c)
				mirror.GiveBack(0, c)
			} else {
				u := ratelimit.Cost{Output: r.Int64N(min(c.Input+c.Output, 20) + 1)}
				a.Settled = u.Minus(c)
				mirror.Settle(0, c, ratelimit.Estimate{}, u)
				used += u.Output
			}
		}
		const near = 5 // replenished since the last step, at 0.3 a second
		left, _, _ := mirror.Level(0, 255)
		spare := left - min(float64(next.Input+next.Output)+20, 1000)
		b := p.tell(7, a)
		if b.Granted {
			granted++
			inFlight = append(inFlight, next)
			mirror.Take(0, next)
		}
		want, _, _ := mirror.Level(0, 255)
		if got := b.Buckets[0].Level; math.Abs(got-want) > near || b.Granted != (spare >= 0) && math.Abs(spare) > near {
			t.Fatalf("step %d: the engine has %v, Buckets %v, %v more than needed; granted %v", step, got, want, spare, b.Granted)
		}
		mirror.Import(0, b)
	}
	if granted < 10 || used > fixed.Count {
		t.Errorf("%d granted, %d tokens used", granted, used)
	}
}

// A learnt limit that leaves nothing lets one attempt through after a while, and is forgotten with the
// next one if no response confirms it.
func TestALearntLimitIsProbedInTheEngine(t *testing.T) {
	p := joined(t, enginetest.Start(t))
	const probe = time.Second
	ask := ratelimit.Account{Probe: probe, Next: &ratelimit.Cost{}}
	var client ratelimit.Buckets
	client.Import(0, p.tell(8, ask))
	p.tell(8, ratelimit.Account{Probe: probe, Learnt: []ratelimit.Observation{{
		Reading: ratelimit.Reading{Row: 3, Kind: ratelimit.Requests, Model: ratelimit.Windowed, Limit: 1, Reset: 31 * 24 * time.Hour},
		Stamp:   client.Granted(0),
	}}})
	if p.tell(8, ask).Granted {
		t.Fatal("nothing is left, and an attempt is granted")
	}
	for n, left := range []int{1, 0} {
		time.Sleep(probe)
		if b := p.tell(8, ask); !b.Granted || len(b.Buckets) != left {
			t.Errorf("probe %d: %+v", n, b)
		}
	}
}

// All processes together get no more than a configured limit has.
func TestAnAccountIsThatOfAll(t *testing.T) {
	s := enginetest.Start(t)
	fixed := ratelimit.Rate{Count: 1000, Per: time.Hour}
	var mu sync.Mutex
	granted := 0
	var all sync.WaitGroup
	for range 4 {
		p := joined(t, s)
		all.Go(func() {
			for range 10 {
				b := p.tell(1, ratelimit.Account{Fixed: fixed, Next: &ratelimit.Cost{Output: 100}})
				if b.Granted {
					mu.Lock()
					granted++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	if granted != 9 { // 2 % stay unused
		t.Errorf("%d of 100 tokens each were granted, of 1000", granted)
	}
}

// The process that asked first gets what there is, even if another one wants less.
func TestTheFirstInLineIsServedFirst(t *testing.T) {
	s := enginetest.Start(t)
	a, b := joined(t, s), joined(t, s)
	fixed := ratelimit.Rate{Count: 1000, Per: time.Second}
	large, small := ratelimit.Account{Fixed: fixed, Next: &ratelimit.Cost{Output: 900}}, ratelimit.Account{Fixed: fixed, Next: &ratelimit.Cost{Output: 10}}
	if !a.tell(1, large).Granted || a.tell(1, large).Granted {
		t.Fatal("the limit was not used up")
	}
	if b.tell(1, small).Granted {
		t.Error("a smaller attempt overtook the first in line")
	}
	time.Sleep(200 * time.Millisecond) // it stops asking
	if !b.tell(1, small).Granted {
		t.Error("one that does not ask keeps the others waiting")
	}
}

// Foreign data in the key and impossible values do no harm.
func TestAHostileAccount(t *testing.T) {
	s := enginetest.Start(t)
	p := joined(t, s)
	for _, text := range []string{"", "x", "first a b\n1 2 3", "first - 0\n3 1 0 -5 nan 0 0 0 0 0 0 0 0 0 0 0 0", "first - 0\n3 1 0 inf inf inf 0 0 0 0 0 0 0 0 0 0 0"} {
		s.Do("SET", p.key("tokens", 9), text)
		if b := p.tell(9, ratelimit.Account{Next: &ratelimit.Cost{Output: 1}}); !b.Granted {
			t.Errorf("%q: %+v", text, b)
		}
	}
	fixed := ratelimit.Rate{Count: 1000, Per: time.Second}
	for _, line := range []string{ // all say that nothing is left
		"255 1 0 1e12 0 9e17 1e-300 0 0 0 0 0 0 0 0 0 0",
		"255 1 0 1000 0 9e17 0 nan 0 0 0 0 0 0 0 0 0",
		"255 0 1 1 0 9e17 0 0 0 1e17 9e17 9e17 9e17 9e17 0 9e17 9e17",
		"3 1 1 10 0 9e17 0 0 0 0 0 9e17 9e17 9e17 0 9e17 9e17",
		"3 1 0 1e12 0 9e17 1e-300 0 0 1e18 9e17 0 0 0 0 9e17 9e17",
		"3.5 1 1 1 0 0 0 0 0 0 0 9e17 0 0 0 0 0",
		"300 1 1 1 0 0 0 0 0 0 0 9e17 0 0 0 0 0",
	} {
		s.Do("SET", p.key("tokens", 9), "first - 0\n"+line)
		a := ratelimit.Account{Fixed: fixed, Probe: 100 * time.Millisecond, Next: &ratelimit.Cost{Output: 900}}
		b := p.tell(9, a)
		for began := time.Now(); !b.Granted && time.Since(began) < 5*time.Second; b = p.tell(9, a) {
			time.Sleep(20 * time.Millisecond)
		}
		if !b.Granted {
			t.Errorf("%q stops all: %+v", line, b)
		}
		for _, own := range b.Buckets {
			if own.Row == 255 && (own.Limit != 1000 || own.Rate != fixed.PerSecond()) {
				t.Errorf("%q is believed: %+v", line, own)
			}
		}
		if left := s.Do("PTTL", p.key("tokens", 9)).(int64); left < 1 {
			t.Errorf("%q: the key stays for %d ms", line, left)
		}
	}
	if left := s.Do("PTTL", p.key("tokens", 9)).(int64); left < 1 {
		t.Errorf("the key stays for %d ms", left)
	}
	s.Do("SET", p.key("tokens", 9), "first - 0\n3 1 1 10 0 9e17 0 0 0 0 0 9e17 9e17 9e17 0 9e17 9e17")
	if b := p.tell(9, ratelimit.Account{Next: &ratelimit.Cost{Output: 1}}); !b.Granted {
		t.Errorf("a process that learns no limits believes one: %+v", b)
	}
	for _, reply := range []any{nil, []any{int64(1)}, []any{"1", "2", "3"}, []any{int64(1), "x", "3"}, []any{int64(1), "2", "3", "not a bucket"}} {
		if _, err := parseBalance(reply); err == nil {
			t.Errorf("%v was taken", reply)
		}
	}
}

// The script adds what processes learn of how their upstream counts as UsageState does, keeps it, and believes
// only possible values.
func TestTheScriptSharesHowTheUpstreamCounts(t *testing.T) {
	s := enginetest.Start(t)
	p, other := joined(t, s), joined(t, s)
	r := rand.New(rand.NewPCG(7, 8))
	var want ratelimit.UsageState
	for step := range 20 {
		var n ratelimit.UsageNews
		for i := range n.Ratios {
			n.Ratios[i].Attempts = r.Int64N(4)
			n.Ratios[i].Ratio = ratelimit.Ratio{Estimated: r.Float64() * 1000, Used: r.Float64() * 1000}
		}
		n.Outputs, n.Typical, n.Rejected, n.Accepted = r.Int64N(3), r.Float64()*100, r.Int64N(2), r.Int64N(9)
		p.tell(11, ratelimit.Account{Counting: ratelimit.Counting{Usage: n}})
		want.Merge(&n)
		got := other.tell(11, ratelimit.Account{}).Usage
		near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*(1+b) }
		same := near(got.Typical, want.Typical) && near(got.Doubt, want.Doubt)
		for i := range got.Ratios {
			same = same && near(got.Ratios[i].Estimated, want.Ratios[i].Estimated) && near(got.Ratios[i].Used, want.Ratios[i].Used)
		}
		if !same {
			t.Fatalf("step %d: the engine has %+v, UsageState %+v", step, got, want)
		}
	}
	if left := s.Do("PTTL", p.key("tokens", 11)).(int64); left < 120_000 || left > 300_000 {
		t.Errorf("it is kept for %d ms", left)
	}
	for _, line := range []string{"usage", "usage 1 2", "usage nan 1 1 1 1 1 1 1 1 1 1 1", "usage 1e18 1e18 -1 1 1 1 1 1 1 1 1e18 1e18"} {
		s.Do("SET", p.key("tokens", 11), "first - 0\n"+line)
		u := p.tell(11, ratelimit.Account{}).Usage
		for _, ratio := range u.Ratios {
			if !(ratio.Estimated >= 0 && ratio.Estimated <= 1e12 && ratio.Used >= 0 && ratio.Used <= 4*ratio.Estimated) {
				t.Errorf("%q: %+v", line, ratio)
			}
		}
		if u.Typical > 1e12 || u.Doubt > 1 {
			t.Errorf("%q: %+v", line, u)
		}
	}
}

// An engine that restarts empty learns from the first process that tells it anything what all knew.
func TestAnEngineThatForgotHowTheUpstreamCountsIsReminded(t *testing.T) {
	s := enginetest.Start(t)
	p, other := joined(t, s), joined(t, s)
	var client ratelimit.Buckets
	client.Limit(ratelimit.Rate{Count: 1e6, Per: time.Hour}, 0)
	tell := func() {
		client.Import(0, p.tell(14, ratelimit.Account{Counting: ratelimit.Counting{Usage: client.TakeNews()}}))
	}
	uses := func(output int64) {
		client.Settle(0, ratelimit.Cost{}, ratelimit.Estimate{Input: 70, Output: 1000}, ratelimit.Cost{Input: 33, Output: output})
		tell()
	}
	for range 30 {
		uses(100)
	}
	before := other.tell(14, ratelimit.Account{}).Usage
	s.Do("FLUSHALL")
	uses(1000)
	if u := other.tell(14, ratelimit.Account{}).Usage; u.Ratios[1].Used != u.Ratios[1].Estimated {
		t.Fatalf("the engine has not forgotten: %+v", u)
	}
	tell()
	after := other.tell(14, ratelimit.Account{}).Usage
	if want := 0.75*before.Ratios[1].Used + 1000; math.Abs(after.Ratios[1].Used-want) > 1 {
		t.Errorf("before %+v, and after another attempt that used 1000 of 1000 tokens %+v", before, after)
	}
}

// A window that is over by what a response says is renewed in the engine at once, whether the limit was known
// before or not. What was sent since the attempt of that response counts in the new window.
func TestAWindowThatIsOverIsRenewedInTheEngine(t *testing.T) {
	p := joined(t, enginetest.Start(t))
	const probe = time.Hour
	one := ratelimit.Charge{Attempts: 1}
	send := func(key uint64) ratelimit.Stamp {
		var client ratelimit.Buckets
		client.Import(0, p.tell(key, ratelimit.Account{Probe: probe, Sent: one}))
		return client.Granted(0)
	}
	says := func(reset time.Duration, s ratelimit.Stamp) ratelimit.Account {
		return ratelimit.Account{Probe: probe, Next: &ratelimit.Cost{}, Learnt: []ratelimit.Observation{{
			Reading: ratelimit.Reading{Row: 3, Kind: ratelimit.Requests, Model: ratelimit.Windowed, Limit: 10, Reset: reset}, Stamp: s,
		}}}
	}
	if b := p.tell(12, says(0, send(12))); !b.Granted || b.Buckets[0].Level != 9 {
		t.Errorf("the first response says that the window is over: %+v", b)
	}
	if b := p.tell(13, says(time.Hour, send(13))); b.Granted {
		t.Fatalf("nothing is left, and an attempt is granted: %+v", b)
	}
	s := send(12)
	for range 3 {
		send(12)
	}
	if b := p.tell(12, says(0, s)); !b.Granted || b.Buckets[0].Level != 6 {
		t.Errorf("a later response says that the window is over, and three attempts were sent since: %+v", b)
	}
	if b := p.tell(13, says(0, send(13))); !b.Granted || b.Buckets[0].Level < 9 {
		t.Errorf("a later response says that the window is over: %+v", b)
	}
}
