package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// provider is the API of a language model that writes nothing but "word", as OpenAI's Chat Completions.
// It has a limit of TOKENS_PER_MINUTE, which its headers tell, and every FAIL_EVERY-th request is
// overloaded.
type provider struct {
	rate, capacity float64 // tokens a second; tokens
	every          int64

	mu       sync.Mutex // guards all below
	level    float64
	at       time.Time
	requests int64
}

func addProvider(mux *http.ServeMux) error {
	limit, err := number("TOKENS_PER_MINUTE", 60_000)
	if err != nil {
		return err
	}
	every, err := number("FAIL_EVERY", 17)
	if err != nil {
		return err
	}
	p := &provider{rate: float64(limit) / 60, capacity: float64(limit), level: float64(limit), at: time.Now(), every: int64(every)}
	codes := &tally{}
	mux.HandleFunc("/stats", func(w http.ResponseWriter, _ *http.Request) { sendJSON(w, map[string]any{"answered": codes.all()}) })
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { codes.add(r.Method, p.respond(w, r)) })
	return nil
}

// question is what matters of a request.
type question struct {
	MaxTokens           int `json:"max_tokens"`
	MaxCompletionTokens int `json:"max_completion_tokens"`
	Stream              bool
}

func (p *provider) respond(w http.ResponseWriter, r *http.Request) int {
	var q question
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&q); err != nil {
		return sendError(w, 400, "invalid_request_error", "The body is not JSON.")
	}
	n := min(max(q.MaxTokens, q.MaxCompletionTokens), 4000)
	if n <= 0 {
		n = 300
	}
	wait, overloaded := p.take(w.Header(), float64(n))
	switch {
	case overloaded:
		return sendError(w, 503, "service_unavailable_error", "The engine is currently overloaded.")
	case wait > 0:
		w.Header().Set("Retry-After-Ms", strconv.FormatInt(wait.Milliseconds()+1, 10))
		return sendError(w, 429, "rate_limit_exceeded", "Rate limit reached on tokens per min (TPM).")
	}
	usage := fmt.Sprintf(`{"prompt_tokens":10,"completion_tokens":%d,"total_tokens":%d}`, n, n+10)
	if q.Stream {
		stream(w, n, usage)
		return 200
	}
	time.Sleep(time.Duration(200+rand.IntN(2000)) * time.Millisecond)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],"usage":%s}`, strings.Repeat("word ", n), usage)
	return 200
}

// take takes tokens from the limit, or returns how long it takes until there are enough. It sets the
// headers that tell what is left.
func (p *provider) take(h http.Header, n float64) (wait time.Duration, overloaded bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.level = min(p.capacity, p.level+p.rate*now.Sub(p.at).Seconds())
	p.at = now
	p.requests++
	if overloaded = p.every > 0 && p.requests%p.every == 0; !overloaded && p.level >= n {
		p.level -= n
	} else if !overloaded {
		wait = time.Duration((n - p.level) / p.rate * float64(time.Second))
	}
	full := time.Duration((p.capacity - p.level) / p.rate * float64(time.Second))
	h.Set("X-RateLimit-Limit-Tokens", strconv.Itoa(int(p.capacity)))
	h.Set("X-RateLimit-Remaining-Tokens", strconv.Itoa(int(p.level)))
	h.Set("X-RateLimit-Reset-Tokens", (full + time.Millisecond).Truncate(time.Millisecond).String())
	return wait, overloaded
}

// stream sends the words as events, and then what they used.
func stream(w http.ResponseWriter, n int, usage string) {
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(format string, a ...any) {
		fmt.Fprintf(w, "data: "+format+"\n\n", a...)
		_ = http.NewResponseController(w).Flush()
		time.Sleep(100 * time.Millisecond)
	}
	const chunk = `{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":%q}}]}`
	for left := n; left > 0; left -= 50 {
		send(chunk, strings.Repeat("word ", min(left, 50)))
	}
	send(`{"object":"chat.completion.chunk","choices":[],"usage":%s}`, usage)
	send("[DONE]")
}

func sendError(w http.ResponseWriter, status int, code, text string) int {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"message":%q,"type":%q,"code":%q}}`, text, code, code)
	return status
}
