package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/retryproxy/retryproxy/policy/tokens"
)

// Tokens of language models, by route.
var (
	tokensTotal = define(Counter, "tokens_total", labels("route", "kind", "fate"),
		"Tokens that responses said they used. kind is input (without cached), output or cached. fate is delivered, wasted if the client did not get the whole response, or retried if another attempt took its place. Shown once there are some.",
		"What do the language models cost, and how much of it is for nothing?")
	tokenLimit = define(Gauge, "token_limit", labels("upstream", "rate_limit"),
		"Tokens per minute that rate limits allow, those of all keys together. Shown if a limit is known.",
		"How close is the use to the limit?")
)

// tokenCounts counts tokens by part and fate.
type tokenCounts [tokens.NumParts][tokens.NumFates]atomic.Uint64

// TokensUsed counts what a response used.
func (s *Stripe) TokensUsed(c tokens.Count, f tokens.Fate) {
	if f >= tokens.NumFates {
		return
	}
	for p := range s.tokens {
		s.tokens[p][f].Add(uint64(max(c.Of(tokens.Part(p)), 0)))
	}
}

func (t *tokenCounts) add(o *tokenCounts) {
	for p := range t {
		addAll(t[p][:], o[p][:])
	}
}

// collect sends the counts, all of them once there are any.
func (t *tokenCounts) collect(ch chan<- prometheus.Metric, route string) {
	if t.sum() == 0 {
		return
	}
	for p := range t {
		for f := range t[p] {
			tokensTotal.emit(ch, float64(t[p][f].Load()), route, tokens.Part(p).String(), tokens.Fate(f).String())
		}
	}
}

// sum returns all tokens.
func (t *tokenCounts) sum() (n uint64) {
	for p := range t {
		for f := range t[p] {
			n += t[p][f].Load()
		}
	}
	return n
}
