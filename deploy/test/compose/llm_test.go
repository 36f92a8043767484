package compose

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/deploy/test/engine"
)

// TestLanguageModelStack runs llm.yml until the provider's bucket of a minute
// is used up and refilled prompts follow: clients get 200 only, although the
// provider is overloaded now and then, and the provider sends no 429.
func TestLanguageModelStack(t *testing.T) {
	engine.Asked(t, "compose")
	const (
		bucket  = 24_000 // tokens: 80 prompts of 300
		prompts = 90
		every   = 9 // of so many requests one is overloaded
	)
	s := up(t, "llm.yml", "prompts", []string{"golang", "redis"},
		[]string{"RETRYPROXY_SHARED_IMAGE=" + engine.FullImage(t), "LLM_PORT=0", "RATE=16",
			fmt.Sprint("TOKENS_PER_MINUTE=", bucket), fmt.Sprint("FAIL_EVERY=", every)})
	var got, sent struct{ Answered map[string]int64 }
	engine.Await(t, "answer to a prompt that had to wait", func() bool {
		s.ask(t, http.MethodGet, "prompts", "/stats", &got)
		return got.Answered["POST 200"] >= prompts
	})
	s.ask(t, http.MethodGet, "provider", "/stats", &sent)
	if len(got.Answered) != 1 {
		t.Errorf("clients got %v; expected 200 only", got.Answered)
	}
	if sent.Answered["POST 429"] != 0 {
		t.Errorf("the provider sent %v; expected no 429 after its bucket of %d tokens", sent.Answered, bucket)
	}
	if sent.Answered["POST 503"] < prompts/every/2 {
		t.Errorf("the provider sent %v; it was to be overloaded for one of %d requests", sent.Answered, every)
	}
	if keys := engine.Docker(t, "exec", s.ids["redis"], "redis-cli", "keys", "*"); strings.TrimSpace(keys) == "" {
		t.Error("the proxies shared nothing through Redis")
	}
	t.Logf("clients got %v, the provider sent %v", got.Answered, sent.Answered)
}
