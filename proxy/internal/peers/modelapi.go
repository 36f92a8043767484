package peers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/proxy/errorbody"
)

// ResponseWithBody is a response with that body and the headers given, each a line.
func ResponseWithBody(status int, body string, headers ...string) string {
	return fmt.Sprintf("HTTP/1.1 %d %s\r\n%sContent-Length: %d\r\n\r\n%s", status, http.StatusText(status), strings.Join(append(headers, ""), "\r\n"), len(body), body)
}

// AsJSON is the header of a body of JSON.
const AsJSON = "Content-Type: application/json; charset=utf-8"

// PostABC is a POST with the body abc.
const PostABC = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"

// ModelErrorBody is what the vendors' clients read of an error.
type ModelErrorBody struct {
	Type  string `json:"type"`
	Error struct {
		Type    string  `json:"type"`
		Message string  `json:"message"`
		Code    string  `json:"code"`
		Param   *string `json:"param"`
	} `json:"error"`
	RequestID string `json:"request_id"`
}

// CheckModelError checks an error that the proxy made for the client of a language model's API.
func CheckModelError(t *testing.T, status int, body string) ModelErrorBody {
	t.Helper()
	var e ModelErrorBody
	if err := json.Unmarshal([]byte(body), &e); err != nil || e.Type != "error" || e.Error.Type != errorbody.TypeOf(status) || e.Error.Code == "" ||
		!strings.HasPrefix(e.Error.Message, "retryproxy: ") || !strings.Contains(body, `"param":null`) {
		t.Errorf("%d: %s %v", status, body, err)
	}
	return e
}

// Parts of the event streams of language models.
const (
	EventStreamType = "text/event-stream; charset=utf-8"
	StreamHeaders   = "HTTP/1.1 200 OK\r\nContent-Type: " + EventStreamType + "\r\nTransfer-Encoding: chunked\r\n\r\n"

	Prelude     = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n: a comment\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\n"
	FirstText   = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"Hi\"}}\n\n"
	Overloaded  = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"
	ServerError = "data: {\"error\":{\"type\":\"server_error\",\"message\":\"oops\"}}\n\n"
	NoQuota     = "data: {\"error\":{\"type\":\"insufficient_quota\",\"code\":\"insufficient_quota\"}}\n\n"
	TryAgain    = "data: {\"error\":{\"type\":\"tokens\",\"code\":\"rate_limit_exceeded\",\"message\":\"Please try again in 7s.\"}}\n\n"
)
