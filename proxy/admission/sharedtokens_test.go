package admission

import (
	"testing"
	"time"

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
	limit := ratelimit.TokenRate{Tokens: 10_000, Per: time.Hour}
	for _, processes := range []int{0, 1, 2, 3, 10} {
		sent := 0
		for range max(processes, 1) {
			a := newTokenAccount(&RateLimit{Tokens: limit}, 0, true)
			a.shared.processes = processes
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
