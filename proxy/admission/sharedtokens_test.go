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
	a.shared.ask(time.Second, first)
	a.shared.answer(time.Second, &a.buckets, &ratelimit.Balance{Wait: 365 * 24 * time.Hour}, first)
	if at := a.shared.due(time.Second, first); at > time.Second+answerWithin {
		t.Errorf("the next question is at %v", at)
	}
}
