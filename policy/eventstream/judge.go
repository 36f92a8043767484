package eventstream

import (
	"encoding/json"
	"strings"
)

// message has the members that distinguish events of the known APIs.
type message struct {
	Type   string          `json:"type"`   // Anthropic; OpenAI, Responses
	Object string          `json:"object"` // OpenAI, Chat Completions, and compatible APIs
	Error  json.RawMessage `json:"error"`

	Response struct { // OpenAI, Responses
		Error json.RawMessage `json:"error"`
	} `json:"response"`
	Choices []struct { // OpenAI, Chat Completions
		Delta        map[string]json.RawMessage `json:"delta"`
		FinishReason json.RawMessage            `json:"finish_reason"`
	} `json:"choices"`
}

// preludes are the types of events that precede content.
var preludes = map[string]bool{
	// Anthropic, "Streaming Messages"
	"ping": true, "message_start": true, "content_block_start": true,
	// OpenAI, "Streaming API responses"
	"response.created": true, "response.queued": true, "response.in_progress": true,
	"response.output_item.added": true, "response.content_part.added": true, "keepalive": true,
}

// judge returns what the event shows and, with Failed, the status that it stands for.
func (e *event) judge() (Verdict, int) {
	if len(e.data) == 0 || string(e.name) == "ping" {
		return Pending, 0 // an event without data is not dispatched (section 9.2.6)
	}
	var m message
	if e.data[0] != '{' || json.Unmarshal(e.data, &m) != nil {
		if string(e.name) == "error" {
			return Failed, unknownError
		}
		return Content, 0
	}
	switch {
	case isError(m.Error):
		return Failed, statusOf(m.Error)
	case isError(m.Response.Error):
		return Failed, statusOf(m.Response.Error)
	case m.Type == "error" || string(e.name) == "error":
		return Failed, statusOf(e.data)
	case preludes[m.Type], m.isEmptyChunk():
		return Pending, 0
	}
	return Content, 0
}

// isEmptyChunk reports whether m is a chunk of a chat completion without content: only a role, or
// no choices.
func (m *message) isEmptyChunk() bool {
	if m.Object != "chat.completion.chunk" {
		return false
	}
	for _, c := range m.Choices {
		if isSet(c.FinishReason) {
			return false
		}
		for name, value := range c.Delta {
			if name != "role" && isSet(value) {
				return false
			}
		}
	}
	return true
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

// unknownError is the status of an error of unknown kind, where the work may have been done.
const unknownError = 500

// statuses maps kinds of errors to the statuses that the APIs use outside streams: Anthropic
// "Errors", OpenAI "Error codes", Google's google.rpc.Code with its HTTP mapping.
var statuses = map[string]int{
	"overloaded_error": 529, "overloaded": 529, "server_is_overloaded": 503, "slow_down": 503, "engine_overloaded": 503, "engine_overloaded_error": 503,
	"rate_limit_error": 429, "rate_limit_exceeded": 429, "rate_limit_reached": 429, "too_many_requests": 429,
	"requests": 429, "tokens": 429, "insufficient_quota": 429, "resource_exhausted": 429,
	"service_unavailable": 503, "service_unavailable_error": 503, "unavailable": 503,
	"timeout_error": 504, "timeout": 504, "deadline_exceeded": 504,
	"api_error": 500, "server_error": 500, "internal_server_error": 500, "internal": 500,
	"invalid_request_error": 400, "invalid_argument": 400, "invalid_prompt": 400, "failed_precondition": 400,
	"authentication_error": 401, "unauthenticated": 401, "billing_error": 402,
	"permission_error": 403, "permission_denied": 403, "not_found_error": 404, "not_found": 404,
	"request_too_large": 413,
}

// statusOf returns the status that an error object stands for. A known code is more precise than
// the type.
func statusOf(object json.RawMessage) int {
	var e struct {
		Type, Status string
		Code         json.RawMessage
	}
	if json.Unmarshal(object, &e) != nil {
		return unknownError
	}
	var number int
	if json.Unmarshal(e.Code, &number) == nil && number >= 400 && number <= 599 {
		return number
	}
	var code string
	_ = json.Unmarshal(e.Code, &code) // not a string: ""
	for _, word := range []string{code, e.Status, e.Type} {
		if status, known := statuses[strings.ToLower(word)]; known {
			return status
		}
	}
	return unknownError
}
