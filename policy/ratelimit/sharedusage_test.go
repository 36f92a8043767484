package ratelimit

import (
	"math"
	"math/rand/v2"
	"testing"
)

// knownLimit is what the engine says with a limit that is far away.
func knownLimit(s UsageState) *Balance {
	return &Balance{Usage: s, Buckets: []BucketState{{Row: 1, Kind: Tokens, Limit: 1e6, Level: 1e6, FullIn: -1, EndsIn: -1, FreeIn: -1}}}
}

// allows is a request that allows 300 tokens of output, and states that it used that many.
func allows(q *Buckets, s *UsageState, used int64) {
	q.Import(0, knownLimit(*s))
	e := Estimate{Input: 20, Output: 300}
	q.Settle(0, q.Expect(e), e, Cost{Input: 10, Output: used})
	news := q.TakeNews()
	s.Merge(&news)
	q.Import(0, knownLimit(*s))
}

// A fleet learns how its upstream counts as fast as a single process does, however many processes see a part
// of the responses.
func TestAFleetLearnsAsFastAsOneProcess(t *testing.T) {
	for _, processes := range []int{1, 3, 50} {
		r := rand.New(rand.NewPCG(1, 2))
		var engine UsageState
		fleet := make([]Buckets, processes)
		for range 2 { // all begin with requests that use a tenth of what they allow
			for i := range fleet {
				allows(&fleet[i], &engine, 30)
			}
		}
		wrong := 0
		for range 700 { // and then all use what they allow
			q := &fleet[r.IntN(processes)]
			q.Import(0, knownLimit(engine)) // the answer to the question whether it may be sent
			if q.Expect(Estimate{Input: 20, Output: 300}).Output < 250 {
				wrong++
			}
			allows(q, &engine, 300)
		}
		if wrong > 8 {
			t.Errorf("%d processes: %d of 700 requests are expected to use far less than they do", processes, wrong)
		}
	}
}

// A 429 that contradicts the estimates of one process is believed by all.
func TestDoubtIsShared(t *testing.T) {
	var a, b Buckets
	var engine UsageState
	allows(&a, &engine, 3)
	b.Import(0, knownLimit(engine))
	e := Estimate{Input: 20, Output: 300}
	before := b.Expect(e)
	s := a.Take(0, a.Expect(e))
	a.GiveBack(0, a.Expect(e))
	a.Calibrate(0, &s, e, Reading{Row: 1, Kind: Tokens, Limit: 1000, Remaining: 100}, true)
	news := a.TakeNews()
	engine.Merge(&news)
	b.Import(0, knownLimit(engine))
	if after := b.Expect(e); after.Output < before.Output+30 {
		t.Errorf("expected of %+v: %+v before the 429 of another process, %+v after it", e, before, after)
	}
}

// What was learned since the question counts as well when its answer is taken.
func TestAnAnswerForgetsNothingThatIsNewer(t *testing.T) {
	var q Buckets
	var engine UsageState
	allows(&q, &engine, 30)
	e := Estimate{Input: 20, Output: 300}
	for range 10 {
		q.Settle(0, Cost{}, e, Cost{Input: 20, Output: 300})
	}
	before := q.Expect(e)
	q.Import(0, knownLimit(engine))
	if after := q.Expect(e); after != before {
		t.Errorf("expected %+v, and %+v after an older answer", before, after)
	}
	q.Import(0, knownLimit(UsageState{}))
	if after := q.Expect(e); after != before {
		t.Errorf("expected %+v, and %+v after the answer of an engine that knows nothing", before, after)
	}
}

// learns is an attempt that used part of its 1000 tokens of output, or after a rejection all of them.
func learns(q *Buckets, used int64) {
	e := Estimate{Input: 20, Output: 1000}
	s := q.Take(0, q.Expect(e))
	q.Calibrate(0, &s, e, Reading{Row: 1, Kind: Tokens, Limit: 4000, Remaining: 1000}, used == 1000)
	q.Settle(0, q.Expect(e), e, Cost{Input: 10, Output: used})
}

// News without an answer are taken once more, in the order in which they were learned.
func TestNewsWithoutAnAnswerAreTakenOnceMore(t *testing.T) {
	var q, quiet Buckets
	for _, b := range []*Buckets{&q, &quiet} {
		b.Import(0, knownLimit(UsageState{}))
	}
	for _, used := range []int64{100, 1000, 100, 100, 1000} {
		learns(&q, used)
		learns(&quiet, used)
		q.TakeNews()
		learns(&q, 100)
		learns(&quiet, 100)
		q.RestoreNews()
	}
	want, got := quiet.TakeNews(), q.TakeNews()
	if !near(got, want) {
		t.Errorf("after five questions without an answer: %+v, want %+v", got, want)
	}
	q.Import(0, knownLimit(UsageState{Typical: 1}))
	q.RestoreNews()
	if again := q.TakeNews(); again != (UsageNews{}) {
		t.Errorf("after an answer: %+v", again)
	}
	var fresh Buckets
	var engine UsageState
	fresh.Import(0, knownLimit(engine))
	learns(&fresh, 100)
	tells(&fresh, &engine)
	fresh.RestoreNews()
	if again := fresh.TakeNews(); again != (UsageNews{}) {
		t.Errorf("after the first answer: %+v", again)
	}
}

// near reports whether two news differ by rounding only.
func near(a, b UsageNews) bool {
	same := func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*(1+math.Abs(b)) }
	ok := same(a.Typical, b.Typical)
	for i := range a.Ratios {
		x, y := &a.Ratios[i], &b.Ratios[i]
		ok = ok && x.Attempts == y.Attempts && same(x.Estimated, y.Estimated) && same(x.Used, y.Used)
		x.Ratio, y.Ratio = Ratio{}, Ratio{}
	}
	a.Typical, b.Typical = 0, 0
	return ok && a == b
}

// tells is a question of q to the engine, and its answer.
func tells(q *Buckets, engine *UsageState) {
	news := q.TakeNews()
	engine.Merge(&news)
	q.Import(0, knownLimit(*engine))
}

// An engine that lost everything gets it back from the first process that tells it anything, and from that one
// only.
func TestAnEngineThatForgotIsReminded(t *testing.T) {
	var fleet [5]Buckets
	var engine UsageState
	for i := range 10 {
		for p := range fleet {
			tells(&fleet[p], &engine)
			learns(&fleet[p], 100)
			if p < 3 && i == 9 {
				learns(&fleet[p], 1000)
			}
			tells(&fleet[p], &engine)
		}
	}
	for p := range fleet {
		tells(&fleet[p], &engine)
	}
	before := engine
	engine = UsageState{}
	for range 2 {
		for p := range fleet {
			tells(&fleet[p], &engine)
		}
	}
	if engine != (UsageState{}) {
		t.Errorf("nobody has news, and the engine is told %+v", engine)
	}
	for p := range fleet {
		know := fleet[p].usage.state()
		fleet[p].usage.rejected(1)
		fleet[p].usage.news.Rejected++
		tells(&fleet[p], &engine)
		if now := fleet[p].usage.state(); now.Ratios != know.Ratios || engine.Ratios != (UsageState{}).Ratios {
			t.Errorf("the engine is told of a rejection; process %d knows %+v after %+v, the engine %+v", p, now, know, engine)
		}
	}
	learns(&fleet[0], 100) // only the first has news: all that it knows is the engine's again
	before.Merge(&fleet[0].usage.news)
	for range 3 {
		for p := range fleet {
			tells(&fleet[p], &engine)
		}
	}
	for i := range before.Ratios {
		b, e := before.Ratios[i], engine.Ratios[i]
		if math.Abs(b.Estimated-e.Estimated) > b.Estimated/100 || math.Abs(b.Used-e.Used) > b.Used/100 {
			t.Errorf("ratio %d was %+v, and is %+v", i, b, e)
		}
	}
	if math.Abs(before.Typical-engine.Typical) > before.Typical/100 || engine.Doubt < before.Doubt {
		t.Errorf("the mean output was %v, and is %v; the doubt was %v, and is %v", before.Typical, engine.Typical, before.Doubt, engine.Doubt)
	}
}

// Responses of an upstream that has stated no limit yet say nothing of how one counts: when the limit is known,
// estimates count in full until responses beside it say otherwise.
func TestUsageWithoutALimitSaysNothing(t *testing.T) {
	e := Estimate{Input: 20, Output: 300}
	var q Buckets
	for range 10 {
		q.Settle(0, Cost{}, e, Cost{Input: 10, Output: 3})
	}
	s := q.Take(0, q.Expect(e))
	q.Learn(0, &s, Reading{Row: 1, Kind: Tokens, Limit: 8000, Remaining: 7000}, false)
	if c := q.Expect(e); c != (Cost{20, 300}) {
		t.Errorf("expected %+v of %+v when a limit is known for the first time", c, e)
	}
	for range 10 {
		q.Settle(0, Cost{}, e, Cost{Input: 10, Output: 3})
	}
	if c := q.Expect(e); c.Output > 10 {
		t.Errorf("expected %+v after ten responses with 3 of 300", c)
	}
}

// Impossible values of the engine do no harm.
func TestAHostileUsage(t *testing.T) {
	e := Estimate{Input: 1000, Output: 1000}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 1e300} {
		var s UsageState
		for i := range s.Ratios {
			s.Ratios[i] = Ratio{bad, bad}
		}
		s.Ratios[ratioInput] = Ratio{1, bad}
		s.Typical, s.Doubt = bad, bad
		var q Buckets
		q.Import(0, &Balance{Usage: s})
		if c := q.Expect(e); c.Input < 0 || c.Input > e.Input*mostUsed || c.Output < 0 || c.Output > e.Output*mostUsed {
			t.Errorf("%v: expected %+v of %+v", bad, c, e)
		}
		if c := q.Expect(Estimate{Unbounded: true}); c.Output < 0 || float64(c.Output) > maxLimit {
			t.Errorf("%v: expected %+v of a request without a bound", bad, c)
		}
	}
}
