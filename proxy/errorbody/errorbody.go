// Package errorbody writes the body of an error response of our own, in a form that the client reads:
// begin with For and Error.Append.
package errorbody

import (
	"encoding/json"
	"net/http"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// Error is a request that got no response of an upstream.
type Error struct {
	Status   int    // of our response
	Reason   string // why, for programs: a label of package policy or http1
	Text     string // why, for people
	Attempts int    // that were made
	ID       string // X-Request-Id; "": unknown
}

// Form is the form of a body.
type Form uint8

// The forms, a closed set.
const (
	Plain    Form = iota // {"error": text, ...}
	Problem              // RFC 9457
	ModelAPI             // as the APIs of language models have it
)

// For returns the form for a client with these request headers. modelAPI is whether the upstream is the
// API of a language model. Problem is only for a client that names it: nearly all accept "*/*".
func For(headers []http1.Header, modelAPI bool) Form {
	switch {
	case modelAPI:
		return ModelAPI
	case acceptsProblem(headers):
		return Problem
	}
	return Plain
}

// ContentType returns the media type of the form.
func (f Form) ContentType() string {
	if f == Problem {
		return problemType
	}
	return "application/json"
}

// Append appends the body, JSON and a line feed, to dst.
func (e *Error) Append(dst []byte, f Form) []byte {
	text := "retryproxy: " + e.Text
	own := members{Status: e.Status, Reason: e.Reason, Attempts: e.Attempts, ID: e.ID}
	var body any
	switch f {
	case Problem:
		body = problem{"about:blank", http.StatusText(e.Status), text, own}
	case ModelAPI:
		body = modelError{"error", modelErrorDetail{TypeOf(e.Status), text, e.Reason, nil}, own}
	default:
		body = plain{text, own}
	}
	b, _ := json.Marshal(body) // it cannot fail: strings and numbers
	return append(append(dst, b...), '\n')
}

// members are in every form.
type members struct {
	Status   int    `json:"status"`
	Reason   string `json:"reason"`
	Attempts int    `json:"attempts"`
	ID       string `json:"request_id,omitempty"`
}

type plain struct {
	Error string `json:"error"`
	members
}

// problem is a problem details object (RFC 9457 section 3.1). Its type is about:blank, so its title is
// the phrase of the status (section 4.2.1); the other members are extensions (section 3.2).
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	members
}

// modelError is what the clients of both large vendors read: Anthropic's has "type": "error", the error
// and request_id (Anthropic, "Errors"), and OpenAI's all four members of the error, of which param may
// be null (OpenAI, "Error codes"; openai-go, internal/apierror).
type modelError struct {
	Type  string           `json:"type"`
	Error modelErrorDetail `json:"error"`
	members
}

type modelErrorDetail struct {
	Type    string  `json:"type"`
	Message string  `json:"message"`
	Code    string  `json:"code"`
	Param   *string `json:"param"`
}

// TypeOf returns the error type for a status: those of Anthropic's table (Anthropic, "Errors"). OpenAI's
// clients decide by the status, and show the type as it is.
func TypeOf(status int) string {
	switch status {
	case 401, 407:
		return "authentication_error"
	case 402:
		return "billing_error"
	case 403:
		return "permission_error"
	case 404:
		return "not_found_error"
	case 408, 504:
		return "timeout_error"
	case 413:
		return "request_too_large"
	case 429:
		return "rate_limit_error"
	case 503, 529:
		return "overloaded_error"
	}
	if status < 500 {
		return "invalid_request_error"
	}
	return "api_error"
}
