package eventstream

import (
	"encoding/json"
	"strings"
)

// failure has the members that describe an error. Each API has one of them.
type failure struct {
	Error  json.RawMessage   `json:"error"`
	Errors []json.RawMessage `json:"errors"`        // Cloudflare
	Code   json.RawMessage   `json:"error_code"`    // Baidu, "Error codes"
	Text   json.RawMessage   `json:"error_message"` // DeepInfra, hermes-agent issue 65631
	unnamed
	BaseResp struct {
		StatusCode json.RawMessage `json:"status_code"`
		StatusMsg  string          `json:"status_msg"`
	} `json:"base_resp"` // MiniMax, "Error codes"
}

// unnamed has the members of an error that nothing calls one: Alibaba Model Studio, "Error messages" (code);
// FastAPI, "Handling Errors" (detail); Dify, "Send Chat Message" (status and code); and gateways.
type unnamed struct {
	Plain      json.RawMessage `json:"code"`
	Status     json.RawMessage `json:"status"`
	StatusCode json.RawMessage `json:"status_code"`
	Camel      json.RawMessage `json:"statusCode"`
	Message    json.RawMessage `json:"message"`
	Detail     json.RawMessage `json:"detail"`
}

// isErrorName reports whether an event of that name or type is an error: error, response.error, or an
// exception of Amazon Bedrock. A part of a response may end with failed, and the response goes on.
func isErrorName(name string) bool {
	return name == "error" || name == "response.failed" || strings.HasSuffix(name, ".error") || strings.HasSuffix(name, "Exception")
}

// failedWith returns the status of the error that m describes, or 0 if it describes none. data is the
// text of m, and name the name of its event.
func (m *message) failedWith(data json.RawMessage, name string) int {
	var delta struct {
		Error  json.RawMessage `json:"error"`
		Reason string          `json:"finish_reason"`
	}
	if strings.HasSuffix(m.Type, "-end") { // Cohere, version 2
		_ = json.Unmarshal(m.Delta, &delta)
	}
	for _, member := range [...]json.RawMessage{m.Error, m.Response.Error, m.Text, delta.Error} {
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
		if status := statusNumber(text(m.StatusCode)); status != 0 {
			return status
		}
		return statusOf(m.Errors[0])
	case isNumber(m.BaseResp.StatusCode):
		return statusOfCode(string(m.BaseResp.StatusCode), m.BaseResp.StatusMsg)
	case string(m.Error) == "true", isNumber(m.Code), m.Object == "error", text(m.Event) == "error", isErrorName(m.Type), isErrorName(name):
		return statusOf(data, name)
	}
	if status := m.endsWith(delta.Reason); status != 0 {
		return status
	}
	if m.completion.isKnown() || m.Response.isKnown() || len(m.Delta) > 0 {
		return 0
	}
	return m.unnamed.status(data)
}

// reasons are the reasons for which a response ends that are errors.
var reasons = map[string]int{
	"error":                        500, // OpenRouter, "Errors and Debugging"
	"ERROR":                        500, // Cohere, "Chat"
	"network_error":                500, // Zhipu, "Chat Completion"
	"insufficient_system_resource": 503, // DeepSeek, "Create Chat Completion"
}

// endsWith returns the status of an error for which the response ends, if that is all that m says; 0 if
// it is none.
func (m *message) endsWith(reason string) int {
	if m.EventType == "stream-end" || strings.HasSuffix(m.Type, "-end") {
		return reasons[reason]
	}
	for i := range m.Choices {
		h := &m.Choices[i]
		if status := reasons[text(h.FinishReason)]; status != 0 && isBlank(h.Delta, 0) && isBlank(h.Message, 0) && isBlank(h.Text, 0) {
			return status
		}
	}
	return 0
}

// status returns the status of an error that nothing calls one: it has the number of a status, or the code
// of a known kind beside a message, or is an exception or a detail alone. It returns 0 for anything else.
func (u *unnamed) status(data json.RawMessage) int {
	for _, member := range [...]json.RawMessage{u.Plain, u.Status, u.StatusCode, u.Camel} {
		if status := statusNumber(text(member)); status != 0 {
			return status
		}
	}
	if code := text(u.Plain); code != "" && isSet(u.Message) {
		if status := statusOfKind(code); status != 0 {
			return status
		}
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(data, &members) != nil || len(members) != 1 {
		return 0
	}
	for name, member := range members {
		switch {
		case strings.HasSuffix(name, "Exception"):
			return statusOf(member, name)
		case name == "detail" && text(member) != "":
			if status := statusOfText(text(member)); status != unknownError {
				return status
			}
		}
	}
	return 0
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
