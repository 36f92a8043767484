package errorbody

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

func TestTheFormIsTheClients(t *testing.T) {
	for accept, want := range map[string]Form{
		"":                                     Plain,
		"*/*":                                  Plain,
		"application/json":                     Plain,
		"application/*":                        Plain,
		"application/problem+xml":              Plain,
		"application/problem+json":             Problem,
		"Application/Problem+JSON ; charset=x": Problem,
		"application/json, application/problem+json;q=0.5": Problem,
		"application/json\napplication/problem+json":       Problem,
		"application/problem+json;q=0":                     Plain,
		"application/problem+json ; Q = 0.000":             Plain,
		"application/problem+json;q=":                      Plain,
		"application/problem+json;q=0.001":                 Problem,
		"application/problem+jsonp":                        Plain,
	} {
		var headers []http1.Header
		for _, line := range strings.Split(accept, "\n") {
			headers = append(headers, http1.Header{ID: http1.Accept, Name: []byte("Accept"), Value: []byte(line)})
		}
		if got := For(headers, false); got != want {
			t.Errorf("%q: %v", accept, got)
		}
		if got := For(headers, true); got != ModelAPI {
			t.Errorf("%q, of a model: %v", accept, got)
		}
	}
}

// Each form is one line of JSON that says everything, whatever is in the texts.
func TestBodies(t *testing.T) {
	e := Error{Status: 503, Reason: "no_client_slot", Text: "no \"room\"\n\xff", Attempts: 2, ID: "id-1"}
	for form, want := range map[Form]string{
		Plain:    `{"error":"retryproxy: no \"room\"\n\ufffd","status":503,"reason":"no_client_slot","attempts":2,"request_id":"id-1"}`,
		Problem:  `{"type":"about:blank","title":"Service Unavailable","detail":"retryproxy: no \"room\"\n\ufffd","status":503,"reason":"no_client_slot","attempts":2,"request_id":"id-1"}`,
		ModelAPI: `{"type":"error","error":{"type":"overloaded_error","message":"retryproxy: no \"room\"\n\ufffd","code":"no_client_slot","param":null},"status":503,"reason":"no_client_slot","attempts":2,"request_id":"id-1"}`,
	} {
		got := string(e.Append(nil, form))
		if got != want+"\n" || !json.Valid([]byte(got)) {
			t.Errorf("form %d:\n%s\n%s", form, got, want)
		}
	}
	if ModelAPI.ContentType() != "application/json" || Plain.ContentType() != "application/json" || Problem.ContentType() != "application/problem+json" {
		t.Error("a media type")
	}
}

// Every status of an error has a type, and a client's fault is not called the server's.
func TestEveryStatusHasAType(t *testing.T) {
	known := map[string]bool{"invalid_request_error": true, "authentication_error": true, "billing_error": true, "permission_error": true, "not_found_error": true,
		"timeout_error": true, "request_too_large": true, "rate_limit_error": true, "overloaded_error": true, "api_error": true}
	for status := 400; status < 600; status++ {
		name := TypeOf(status)
		if !known[name] {
			t.Errorf("%d %s: %q", status, http.StatusText(status), name)
		}
		if status < 500 && (name == "api_error" || name == "overloaded_error") || status >= 500 && name == "invalid_request_error" {
			t.Errorf("%d: %s", status, name)
		}
	}
}

// The types are those of Anthropic's table of errors (Anthropic, "Errors"); a proxy's own statuses have the nearest.
func TestTypesOfStatuses(t *testing.T) {
	for status, want := range map[int]string{
		400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error",
		405: "invalid_request_error", 406: "invalid_request_error", 407: "authentication_error", 408: "timeout_error", 409: "invalid_request_error",
		412: "invalid_request_error", 413: "request_too_large", 414: "invalid_request_error", 417: "invalid_request_error", 421: "invalid_request_error",
		428: "invalid_request_error", 429: "rate_limit_error", 430: "invalid_request_error", 431: "invalid_request_error", 499: "invalid_request_error",
		500: "api_error", 501: "api_error", 502: "api_error", 503: "overloaded_error", 504: "timeout_error", 505: "api_error",
		528: "api_error", 529: "overloaded_error", 530: "api_error", 599: "api_error",
	} {
		if got := TypeOf(status); got != want {
			t.Errorf("%d: %s, want %s", status, got, want)
		}
	}
}
