package metrics

import (
	"testing"

	"github.com/retryproxy/retryproxy/policy/tokens"
)

func TestTokensAreShownOnceThereAreSome(t *testing.T) {
	m := New(Options{})
	s := m.Route("a").Near()
	s.RequestBegan()
	scrape(t, m).want(t, map[string]string{`retryproxy_tokens_total{fate="delivered",kind="input",route="a"}`: ""})
	s.TokensUsed(tokens.Count{Input: 5, Cached: 2, Output: -1}, tokens.Delivered)
	s.TokensUsed(tokens.Count{Output: 7}, tokens.Wasted)
	s.TokensUsed(tokens.Count{Output: 7}, tokens.NumFates) // our code never passes this
	scrape(t, m).want(t, map[string]string{
		`retryproxy_tokens_total{fate="delivered",kind="input",route="a"}`:  "5",
		`retryproxy_tokens_total{fate="delivered",kind="cached",route="a"}`: "2",
		`retryproxy_tokens_total{fate="delivered",kind="output",route="a"}`: "0",
		`retryproxy_tokens_total{fate="wasted",kind="output",route="a"}`:    "7",
		`retryproxy_tokens_total{fate="retried",kind="input",route="a"}`:    "0",
	})
}
