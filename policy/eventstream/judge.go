package eventstream

import (
	"encoding/json"
	"errors"
	"strings"
)

// message has the members that distinguish events of the known APIs.
type message struct {
	Type      string          `json:"type"`       // Anthropic; OpenAI, Responses; Cohere, version 2
	EventType string          `json:"event_type"` // Cohere, version 1
	Object    string          `json:"object"`     // OpenAI, Chat Completions, and compatible APIs
	Delta     json.RawMessage `json:"delta"`      // Anthropic; OpenAI, Responses; Cohere, version 2
	completion
	failure

	Response struct { // OpenAI, Responses; Gemini inside Code Assist
		Error json.RawMessage `json:"error"`
		completion
	} `json:"response"`
}

// completion has the members of a chunk of an API whose chunks have no type.
type completion struct {
	Choices []choice `json:"choices"` // OpenAI, Chat Completions and Completions

	Candidates     []json.RawMessage `json:"candidates"` // Gemini
	PromptFeedback json.RawMessage   `json:"promptFeedback"`
	UsageMetadata  json.RawMessage   `json:"usageMetadata"`
}

type choice struct {
	Delta        json.RawMessage `json:"delta"`
	Message      json.RawMessage `json:"message"` // Perplexity, beside delta
	Text         json.RawMessage `json:"text"`    // Completions
	FinishReason json.RawMessage `json:"finish_reason"`
	Error        json.RawMessage `json:"error"` // OpenRouter, "Errors"
}

// failure has the members that describe an error. Each API has one of them.
type failure struct {
	Error    json.RawMessage   `json:"error"`
	Errors   []json.RawMessage `json:"errors"`     // Cloudflare
	Code     json.RawMessage   `json:"error_code"` // Baidu, "Error codes"
	BaseResp struct {
		StatusCode json.RawMessage `json:"status_code"`
		StatusMsg  string          `json:"status_msg"`
	} `json:"base_resp"` // MiniMax, "Error codes"
}

// preludes are the types of events that precede content.
var preludes = map[string]bool{
	// Anthropic, "Streaming Messages"
	"message_start": true, "content_block_start": true,
	// OpenAI, "Streaming API responses"; codex-rs `codex-api/src/sse/responses.rs`
	"response.created": true, "response.queued": true, "response.in_progress": true,
	"response.output_item.added": true, "response.content_part.added": true, "response.reasoning_summary_part.added": true,
	"codex.rate_limits": true, "response.metadata": true,
	// Cohere, "Streaming Responses", versions 2 and 1
	"message-start": true, "content-start": true, "stream-start": true,
}

// keepAlives are the types and names of events that only keep a connection alive: of Anthropic,
// OpenAI, and gateways.
var keepAlives = map[string]bool{"ping": true, "keepalive": true, "keep-alive": true, "heartbeat": true}

// judge returns what the event shows and, with Failed, the status that it stands for.
func (e *event) judge() (Verdict, int) {
	if len(e.data) == 0 || keepAlives[string(e.name)] {
		return Pending, 0 // an event without data is not dispatched (section 9.2.6)
	}
	var m message
	if !m.parse(e.data) {
		if string(e.name) == "error" {
			return Failed, statusOfText(string(e.data))
		}
		return Content, 0
	}
	if status := m.failedWith(e.data, string(e.name)); status != 0 {
		return Failed, status
	}
	if keepAlives[m.Type] || preludes[m.Type] || preludes[m.EventType] || m.isEmptyDelta() || m.isEmptyChunk() {
		return Pending, 0
	}
	return Content, 0
}

// parse reports whether data is a JSON object. A member of another type than the known APIs have is
// left out.
func (m *message) parse(data []byte) bool {
	if data[0] != '{' {
		return false
	}
	var otherType *json.UnmarshalTypeError
	err := json.Unmarshal(data, m)
	return err == nil || errors.As(err, &otherType)
}

// failedWith returns the status of the error that m describes, or 0 if it describes none. data is the
// text of m, and name the name of its event.
func (m *message) failedWith(data json.RawMessage, name string) int {
	for _, member := range []json.RawMessage{m.Error, m.Response.Error} {
		if isError(member) {
			return statusOf(member)
		}
	}
	for i := range m.Choices {
		if isError(m.Choices[i].Error) {
			return statusOf(m.Choices[i].Error)
		}
	}
	switch {
	case len(m.Errors) > 0:
		return statusOf(m.Errors[0])
	case isNumber(m.BaseResp.StatusCode):
		return statusOfCode(string(m.BaseResp.StatusCode), m.BaseResp.StatusMsg)
	case string(m.Error) == "true", isNumber(m.Code), m.Object == "error",
		m.Type == "error", m.Type == "response.failed", name == "error":
		return statusOf(data)
	}
	return 0
}

// isEmptyDelta reports whether m adds nothing to the response, as the first delta of a block often
// does.
func (m *message) isEmptyDelta() bool {
	return strings.HasSuffix(m.Type, "delta") && len(m.Delta) > 0 && isBlank(m.Delta, 0)
}

// isEmptyChunk reports whether m is a chunk without content: only a role, no choices (Azure's first
// chunk has the results of its filters only), or no candidates.
func (m *message) isEmptyChunk() bool {
	switch m.Object {
	case "chat.completion.chunk", "text_completion":
		return m.completion.isEmpty()
	case "":
		return m.completion.isKnown() && m.completion.isEmpty() || m.Response.isKnown() && m.Response.isEmpty()
	}
	return false
}

// isKnown reports whether c is a chunk of an API that is known.
func (c *completion) isKnown() bool {
	return c.Choices != nil || c.Candidates != nil || len(c.UsageMetadata) > 0
}

// isEmpty reports whether nothing in c comes from the model.
func (c *completion) isEmpty() bool {
	for i := range c.Choices {
		h := &c.Choices[i]
		if isSet(h.FinishReason) && string(h.FinishReason) != `"null"` || !isBlank(h.Delta, 0) || !isBlank(h.Message, 0) || !isBlank(h.Text, 0) {
			return false
		}
	}
	for _, one := range c.Candidates {
		if !isBlank(one, 0) {
			return false
		}
	}
	return !isSet(c.PromptFeedback)
}

// maxDepth bounds how deep isBlank looks, since it parses each level anew. Gemini's text is at level 3.
const maxDepth = 8

// notOfModel are the members of a delta or a candidate that say nothing of what the model generates.
var notOfModel = map[string]bool{
	"role": true, "type": true, "index": true, "id": true, "token_id": true, // Chat Completions, Together
	"safetyRatings": true, // Gemini
}

// isBlank reports whether a JSON value holds no text, apart from members of notOfModel. Numbers and
// booleans are none. A tool call is never blank: some start with an index alone. Nor is a value of
// more than maxDepth levels.
func isBlank(value json.RawMessage, depth int) bool {
	switch {
	case !isSet(value):
		return true
	case depth > maxDepth:
		return false
	}
	switch value[0] {
	case '{':
		var members map[string]json.RawMessage
		if json.Unmarshal(value, &members) != nil {
			return false
		}
		for name, member := range members {
			if notOfModel[name] {
				continue
			}
			if !isBlank(member, depth+1) || name == "tool_calls" && isSet(member) {
				return false
			}
		}
		return true
	case '[':
		var elements []json.RawMessage
		if json.Unmarshal(value, &elements) != nil {
			return false
		}
		for _, element := range elements {
			if !isBlank(element, depth+1) {
				return false
			}
		}
		return true
	}
	return value[0] != '"'
}

// isSet reports whether a member exists and is neither null nor empty.
func isSet(value json.RawMessage) bool {
	switch string(value) {
	case "", "null", `""`, "[]", "{}":
		return false
	}
	return true
}

// isError reports whether a member describes an error: an object or a text.
func isError(value json.RawMessage) bool {
	return isSet(value) && (value[0] == '{' || value[0] == '"')
}

// isNumber reports whether a member is a number other than 0. Both APIs with such codes use 0 for
// success.
func isNumber(value json.RawMessage) bool {
	return len(value) > 0 && '1' <= value[0] && value[0] <= '9'
}
