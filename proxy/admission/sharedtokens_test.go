package admission

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/queue"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

// An engine that says "ask in a year" keeps nobody waiting.
func TestAnAnswerDefersTheNextQuestionOnlyBriefly(t *testing.T) {
	a := newTokenAccount(&RateLimit{Learn: true}, 0, true)
	first := &Waiter{Use: &Use{}}
	a.shared.ask(time.Second, &a.buckets, first)
	a.shared.answer(time.Second, &a.buckets, &ratelimit.Balance{Wait: 365 * 24 * time.Hour}, first)
	if at := a.shared.due(time.Second, first); at > time.Second+answerWithin {
		t.Errorf("the next question is at %v", at)
	}
}

// Whatever several processes send without asking, before one of them tells the others, there is enough
// for all of it. A process that does not know yet how many there are asks each time.
func TestProcessesSendNoMoreThanThereIsBeforeTheyTell(t *testing.T) {
	limit := ratelimit.Rate{Count: 10_000, Per: time.Hour}
	for _, processes := range []int{0, 1, 2, 3, 10} {
		sent := 0
		for range max(processes, 1) {
			a := newTokenAccount(&RateLimit{Tokens: limit}, 0, true)
			a.shared.processes = processes
			if a.ready(time.Second/2, &Use{}) {
				t.Errorf("%d processes: one is sent before the first answer", processes)
			}
			use := func() *Use { return &Use{Estimate: ratelimit.Estimate{Output: 100}} }
			if a.ready(time.Second, use()) {
				t.Errorf("%d processes: one is sent before the first answer", processes)
			}
			a.shared.ask(time.Second, &a.buckets, &Waiter{Use: use()})
			a.shared.answer(time.Second, &a.buckets, &ratelimit.Balance{}, nil)
			for u := use(); a.ready(time.Second, u) && sent < 1000; u = use() {
				a.take(time.Second, u)
				sent++
				if sent%5 == 0 { // told, without an answer yet
					a.shared.ask(time.Second, &a.buckets, nil)
				}
			}
		}
		if processes == 0 && sent > 0 || sent > 50 {
			t.Errorf("%d processes send %d of 100 tokens each, without an answer", processes, sent)
		}
		if processes > 0 && sent < 25 {
			t.Errorf("%d processes send only %d", processes, sent)
		}
	}
}

// What responses say about how the upstream counts is told to the other processes, and theirs is believed.
func TestProcessesShareHowTheUpstreamCounts(t *testing.T) {
	a, b := newTokenAccount(&RateLimit{Learn: true}, 0, true), newTokenAccount(&RateLimit{Learn: true}, 0, true)
	e := ratelimit.Estimate{Input: 20, Output: 1000}
	u := &Use{Estimate: e}
	a.take(0, u)
	a.learn(0, u, ratelimit.Reading{Row: 1, Kind: ratelimit.Tokens, Limit: 1e6, Remaining: 9e5}, false)
	a.settle(0, u, ratelimit.Cost{Input: 20, Output: 100})
	var engine ratelimit.UsageState
	told := a.shared.ask(time.Second, &a.buckets, nil)
	engine.Merge(&told.Usage)
	b.shared.answer(time.Second, &b.buckets, &ratelimit.Balance{Usage: engine}, nil)
	if c := b.buckets.Expect(e); c.Output > 150 {
		t.Errorf("one process saw that 100 of 1000 tokens are used; another expects %d", c.Output)
	}
	if again := a.shared.ask(time.Second, &a.buckets, nil); again.Usage != (ratelimit.UsageNews{}) {
		t.Errorf("told again: %+v", again.Usage)
	}
}

// A process that was idle asks for too little if the others have learned meanwhile that attempts use more. The
// answer tells, and it asks again before it sends.
func TestAnIdleProcessAsksAgainForWhatTheOthersLearned(t *testing.T) {
	a := newTokenAccount(&RateLimit{Learn: true}, 0, true)
	e := ratelimit.Estimate{Input: 20, Output: 1000}
	first := &Waiter{Use: &Use{Estimate: e}}
	engine := ratelimit.UsageState{}
	small := ratelimit.UsageNews{}
	small.Ratios[1].Attempts, small.Ratios[1].Ratio = 1, ratelimit.Ratio{Estimated: 1000, Used: 100}
	engine.Merge(&small)
	a.buckets.Import(0, &ratelimit.Balance{Usage: engine})
	asked := a.shared.ask(time.Second, &a.buckets, first)
	whole := ratelimit.UsageNews{}
	whole.Ratios[1].Attempts, whole.Ratios[1].Ratio = 50, ratelimit.Ratio{Estimated: 4000, Used: 4000}
	engine.Merge(&whole)
	if a.shared.answer(time.Second, &a.buckets, &ratelimit.Balance{Granted: true, Usage: engine}, first) {
		t.Fatalf("an attempt is sent for %+v", asked.Next)
	}
	if at := a.shared.due(time.Second, first); at > time.Second {
		t.Errorf("it asks again at %v", at)
	}
	again := a.shared.ask(time.Second, &a.buckets, first)
	if again.Next.Output < 950 || again.Sent.Output != -asked.Next.Output || again.Sent.Attempts != -1 {
		t.Errorf("asked for %+v at first, and then for %+v, giving back %+v", asked.Next, again.Next, again.Sent)
	}
	engine.Ratios[1].Used *= 3
	if !a.shared.answer(time.Second, &a.buckets, &ratelimit.Balance{Granted: true, Usage: engine}, first) {
		t.Error("it asks a third time")
	}
}

// What is learned while the engine does not answer is told with the next question that it answers, and what the
// other processes knew before stays.
func TestWhatIsLearnedDuringAnOutageIsTold(t *testing.T) {
	q := &RateLimitQueue{set: &RateLimits{}, waiters: queue.New[*Waiter](1), timer: time.NewTimer(time.Hour), tokens: newTokenAccount(&RateLimit{Learn: true}, 0, true)}
	a := q.tokens
	e := ratelimit.Estimate{Input: 20, Output: 1000}
	engine := ratelimit.UsageState{}
	engine.Ratios[1] = ratelimit.Ratio{Estimated: 4000, Used: 4000}
	known := func() *ratelimit.Balance {
		return &ratelimit.Balance{Usage: engine, Buckets: []ratelimit.BucketState{{Row: 1, Kind: ratelimit.Tokens, Limit: 1e6, Level: 1e6, FullIn: -1, EndsIn: -1, FreeIn: -1}}}
	}
	a.shared.answer(0, &a.buckets, known(), nil)
	for range 20 {
		u := &Use{Estimate: e}
		a.take(time.Second, u)
		a.settle(time.Second, u, ratelimit.Cost{Input: 20, Output: 100})
		a.shared.ask(time.Second, &a.buckets, nil)
		q.FailRequest(time.Second)
	}
	told := a.shared.ask(2*time.Second, &a.buckets, nil)
	engine.Merge(&told.Usage)
	a.shared.answer(2*time.Second, &a.buckets, known(), nil)
	if c := a.buckets.Expect(e); c.Output > 110 || told.Usage.Ratios[1].Attempts != 20 {
		t.Errorf("20 attempts used 100 of 1000 tokens; %d are told, and %d tokens expected", told.Usage.Ratios[1].Attempts, c.Output)
	}
}
