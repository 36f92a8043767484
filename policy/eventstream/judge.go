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
	Event     json.RawMessage `json:"event"`      // Dify; Llama API
	completion
	failure

	Response struct { // OpenAI, Responses; Gemini inside Code Assist
		Error json.RawMessage `json:"error"`
		completion
	} `json:"response"`
	Output struct { // Alibaba's own API
		choice
		completion
	} `json:"output"`
}

// completion has the members of a chunk of an API whose chunks have no type.
type completion struct {
	Choices []choice `json:"choices"` // OpenAI, Chat Completions and Completions

	Candidates     []json.RawMessage `json:"candidates"` // Gemini
	PromptFeedback json.RawMessage   `json:"promptFeedback"`
	UsageMetadata  json.RawMessage   `json:"usageMetadata"`

	Results []struct {
		Text   string `json:"generated_text"`
		Reason string `json:"stop_reason"`
	} `json:"results"` // watsonx
}

type choice struct {
	Delta        json.RawMessage `json:"delta"`
	Message      json.RawMessage `json:"message"` // Perplexity, beside delta
	Text         json.RawMessage `json:"text"`    // Completions
	FinishReason json.RawMessage `json:"finish_reason"`
	Error        json.RawMessage `json:"error"` // OpenRouter, "Errors"
}

// preludes are the types of events that precede content.
var preludes = map[string]bool{
	// Anthropic, "Streaming Messages"
	"message_start": true, "content_block_start": true,
	// OpenAI, "Streaming API responses"; codex-rs `codex-api/src/sse/responses.rs`
	"response.created": true, "response.queued": true, "response.in_progress": true,
	"response.output_item.added": true, "response.content_part.added": true, "response.reasoning_summary_part.added": true,
	"response.mcp_list_tools.in_progress": true, "response.mcp_list_tools.completed": true,
	"codex.rate_limits": true, "response.metadata": true,
	// Mistral, "Agents"; Gemini, "Interactions API"
	"conversation.response.started": true, "interaction.start": true, "interaction.created": true, "content.start": true,
	// Cohere, "Streaming Responses", versions 2 and 1
	"message-start": true, "content-start": true, "stream-start": true,
}

// keepAlives are the types and names of events that only keep a connection alive.
var keepAlives = map[string]bool{
	"ping":                true, // Anthropic, "Streaming Messages"
	"keepalive":           true, // OpenAI, openai-node pull request 1965
	"response.keep_alive": true, // OpenRouter, OpenRouterTeam/python-sdk issue 266
	"keep-alive":          true, // Firebase, "Streaming from the REST API"
	"heartbeat":           true, // of gateways: vellum-assistant pull request 29507
}

// judge returns what the event shows and, with Failed, the status that it stands for.
func (e *event) judge() (Verdict, int) {
	if len(e.data) == 0 || keepAlives[string(e.name)] {
		return Pending, 0 // an event without data is not dispatched (section 9.2.6)
	}
	var m message
	data, isObject := m.parse(e.data)
	if !isObject {
		switch {
		case isErrorName(string(e.name)):
			return Failed, statusOfText(string(e.name), string(e.data))
		case !isSet(e.data):
			return Pending, 0
		}
		return Content, 0
	}
	if status := m.failedWith(data, string(e.name)); status != 0 {
		return Failed, status
	}
	if !isSet(data) || keepAlives[m.Type] || preludes[m.Type] || preludes[m.EventType] || m.isEmptyDelta() || m.isEmptyChunk() {
		return Pending, 0
	}
	return Content, 0
}

// parse reports whether data is a JSON object, and returns it. Gemini puts an error into an array. A
// member of another type than the known APIs have is left out.
func (m *message) parse(data []byte) (object []byte, ok bool) {
	if data[0] == '[' {
		var elements []json.RawMessage
		if json.Unmarshal(data, &elements) != nil || len(elements) != 1 || len(elements[0]) == 0 {
			return nil, false
		}
		data = elements[0]
	}
	if data[0] != '{' {
		return nil, false
	}
	var otherType *json.UnmarshalTypeError
	err := json.Unmarshal(data, m)
	return data, err == nil || errors.As(err, &otherType)
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
		return m.completion.isKnown() && m.completion.isEmpty() || m.Response.isKnown() && m.Response.isEmpty() ||
			m.Output.isKnown() && m.Output.completion.isEmpty() || len(m.Output.Text) > 0 && m.Output.choice.isEmpty() || m.isStart()
	}
	return false
}

// isStart reports whether m opens a response of the Llama API.
func (m *message) isStart() bool {
	var e struct {
		Type  string          `json:"event_type"`
		Delta json.RawMessage `json:"delta"`
	}
	return len(m.Event) > 0 && m.Event[0] == '{' && json.Unmarshal(m.Event, &e) == nil && e.Type == "start" && isBlank(e.Delta, 0)
}

// isKnown reports whether c is a chunk of an API that is known.
func (c *completion) isKnown() bool {
	return c.Choices != nil || c.Candidates != nil || len(c.UsageMetadata) > 0 || c.Results != nil
}

// isEmpty reports whether nothing in c comes from the model.
func (c *completion) isEmpty() bool {
	for i := range c.Choices {
		if !c.Choices[i].isEmpty() {
			return false
		}
	}
	for _, one := range c.Candidates {
		if !isBlank(one, 0) {
			return false
		}
	}
	for i := range c.Results {
		if h := &c.Results[i]; h.Text != "" || h.Reason != "" && !strings.EqualFold(h.Reason, "not_finished") {
			return false
		}
	}
	return !isSet(c.PromptFeedback)
}

// isEmpty reports whether nothing in h comes from the model.
func (h *choice) isEmpty() bool {
	return (!isSet(h.FinishReason) || string(h.FinishReason) == `"null"`) && isBlank(h.Delta, 0) && isBlank(h.Message, 0) && isBlank(h.Text, 0)
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
