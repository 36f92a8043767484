package main

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// wire is the format of a vendor's API. Strings are JSON or whole events.
type wire interface {
	limits(h http.Header, requests, tokens *rig.Bucket, now time.Time)
	usedUp(h http.Header, until time.Time) (said time.Time) // the rate limit asks to wait, and no Retry-After
	refuse(h http.Header, why fault, wait time.Duration) (status int, body string)
	whole(tokens int) string
	prelude() string
	content(text string) string
	end(tokens int) string
	errorEvent(wait time.Duration) string
}

const (
	eventStream = "text/event-stream; charset=utf-8"
	jsonType    = "application/json"
)

// seconds returns wait in seconds, rounded up.
func seconds(wait time.Duration) string { return strconv.Itoa(int(math.Ceil(wait.Seconds()))) }

// milliseconds returns wait in milliseconds, rounded up.
func milliseconds(wait time.Duration) int64 {
	return int64((wait + time.Millisecond - 1) / time.Millisecond)
}

// openAIWire is the wire of Chat Completions.
type openAIWire struct{}

func (openAIWire) limits(h http.Header, requests, tokens *rig.Bucket, _ time.Time) {
	for name, b := range map[string]*rig.Bucket{"requests": requests, "tokens": tokens} {
		h.Set("x-ratelimit-limit-"+name, strconv.Itoa(int(b.Capacity)))
		h.Set("x-ratelimit-remaining-"+name, strconv.Itoa(int(b.Level)))
		h.Set("x-ratelimit-reset-"+name, (time.Duration(milliseconds(b.Until(b.Capacity))) * time.Millisecond).String())
	}
}

func (openAIWire) usedUp(h http.Header, until time.Time) time.Time {
	h.Set("x-ratelimit-remaining-requests", "0")
	h.Set("x-ratelimit-reset-requests", (time.Duration(milliseconds(time.Until(until))) * time.Millisecond).String())
	return until
}

func (openAIWire) refuse(h http.Header, why fault, wait time.Duration) (int, string) {
	text := ""
	if wait > 0 {
		h.Set("retry-after-ms", strconv.FormatInt(milliseconds(wait), 10))
		h.Set("retry-after", seconds(wait))
		text = fmt.Sprintf(" Please try again in %dms.", milliseconds(wait))
	}
	switch why {
	case spent:
		return 429, `{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`
	case limited:
		return 429, `{"error":{"message":"Rate limit reached for fake in organization org-1 on tokens per min (TPM).` + text + `","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`
	}
	return 503, `{"error":{"message":"The engine is currently overloaded, please try again later.","type":"service_unavailable_error","param":null,"code":null}}`
}

func (openAIWire) whole(tokens int) string {
	return fmt.Sprintf(`{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"fake","choices":[{"index":0,"message":{"role":"assistant","content":%q,"refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":%d,"total_tokens":%d}}`,
		words(tokens), tokens, tokens+10)
}

func (openAIWire) event(choices, more string) string {
	return `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"fake","choices":` + choices + more + "}\n\n"
}

func (o openAIWire) prelude() string {
	return o.event(`[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}]`, "")
}

func (o openAIWire) content(text string) string {
	return o.event(fmt.Sprintf(`[{"index":0,"delta":{"content":%q},"logprobs":null,"finish_reason":null}]`, text), "")
}

func (o openAIWire) end(tokens int) string {
	return o.event(`[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]`, "") +
		o.event(`[]`, fmt.Sprintf(`,"usage":{"prompt_tokens":10,"completion_tokens":%d,"total_tokens":%d}`, tokens, tokens+10)) + "data: [DONE]\n\n"
}

func (openAIWire) errorEvent(wait time.Duration) string {
	if wait > 0 {
		return fmt.Sprintf(`data: {"error":{"message":"Rate limit reached for fake. Please try again in %dms.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`+"\n\n", milliseconds(wait))
	}
	return `data: {"error":{"message":"Our servers are currently overloaded.","type":"service_unavailable_error","param":null,"code":"server_is_overloaded"}}` + "\n\n"
}

// anthropicWire is the wire of Messages.
type anthropicWire struct{}

func (anthropicWire) limits(h http.Header, requests, tokens *rig.Bucket, now time.Time) {
	for name, b := range map[string]*rig.Bucket{"requests": requests, "tokens": tokens} {
		h.Set("anthropic-ratelimit-"+name+"-limit", strconv.Itoa(int(b.Capacity)))
		h.Set("anthropic-ratelimit-"+name+"-remaining", strconv.Itoa(int(b.Level)))
		h.Set("anthropic-ratelimit-"+name+"-reset", wholeSecond(now.Add(b.Until(b.Capacity))).Format(time.RFC3339))
	}
}

func (anthropicWire) usedUp(h http.Header, until time.Time) time.Time {
	said := wholeSecond(until)
	h.Set("anthropic-ratelimit-requests-remaining", "0")
	h.Set("anthropic-ratelimit-requests-reset", said.Format(time.RFC3339))
	return said
}

// wholeSecond returns the next whole second, as the times of Anthropic's headers have no fraction.
func wholeSecond(t time.Time) time.Time { return t.Add(time.Second - 1).UTC().Truncate(time.Second) }

func (anthropicWire) refuse(h http.Header, why fault, wait time.Duration) (int, string) {
	if wait > 0 {
		h.Set("retry-after", seconds(wait))
	}
	switch why {
	case spent:
		return 429, `{"type":"error","error":{"type":"rate_limit_error","message":"Your organization has reached its enforced spend limit.","details":{"error_code":"enforced_spend_limit_reached"}}}`
	case limited:
		return 429, `{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate limit."}}`
	case unavailable:
		return 503, `{"type":"error","error":{"type":"api_error","message":"Service unavailable"}}`
	}
	return 529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`
}

func (anthropicWire) whole(tokens int) string {
	return fmt.Sprintf(`{"id":"msg_1","type":"message","role":"assistant","model":"fake","content":[{"type":"text","text":%q}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":10,"output_tokens":%d}}`, words(tokens), tokens)
}

func (anthropicWire) prelude() string {
	return `event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"fake","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: ping
data: {"type": "ping"}

`
}

func (anthropicWire) content(text string) string {
	return fmt.Sprintf("event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":%q}}\n\n", text)
}

func (anthropicWire) end(tokens int) string {
	return fmt.Sprintf(`event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":%d}}

event: message_stop
data: {"type":"message_stop"}

`, tokens)
}

func (anthropicWire) errorEvent(time.Duration) string {
	return "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"
}

// words returns a text of so many tokens.
func words(tokens int) string { return strings.Repeat("word ", tokens) }
