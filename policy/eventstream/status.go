package eventstream

import (
	"encoding/json"
	"strconv"
	"strings"
)

// unknownError is the status of an error of unknown kind, where the work may have been done.
const unknownError = 500

// statuses maps kinds of errors, as plain writes them, to the statuses that the APIs use outside
// streams. Its sources are Anthropic "Errors", OpenAI "Error codes" and codex-rs `responses.rs`,
// Google's google.rpc.Code with its HTTP mapping, and those named at a line.
var statuses = map[string]int{
	"overloadederror": 529, "overloaded": 529,
	"slowdown": 503, "serverisoverloaded": 503, "engineoverloaded": 503, "engineoverloadederror": 503,
	"requests": 429, "tokens": 429, "insufficientquota": 429, "resourceexhausted": 429, "usagelimitreached": 429, "usagenotincluded": 429,
	"unavailable": 503, "deadlineexceeded": 504, "gatewaytimeout": 504,
	"apierror": 500, "servererror": 500, "internalservererror": 500, "internal": 500,
	"invalidrequesterror": 400, "invalidargument": 400, "invalidprompt": 400, "failedprecondition": 400, "contextlengthexceeded": 400, "badrequest": 400, "badrequesterror": 400,
	"authenticationerror": 401, "unauthenticated": 401, "billingerror": 402,
	"permissionerror": 403, "permissiondenied": 403, "notfounderror": 404, "notfound": 404,
	"requesttoolarge":             413,
	"servicetiercapacityexceeded": 429, "3505": 429, // Mistral, mistral-vibe issue 46
	"1302": 429, "1303": 429, "1304": 429, "1305": 429, "1308": 429, "1113": 429, // Zhipu and Z.ai, "Error codes"
	"1001": 504, "1002": 429, "1039": 429, "1008": 402, "1004": 401, // MiniMax, "Error codes"
	"18": 429, "336100": 503, "336501": 429, "336502": 429, // Baidu, "Error codes"
	"3040": 429, "4006": 429, // Cloudflare Workers AI, "Errors" (out of capacity, daily allocation)
}

// words are parts of a kind of error, as plain writes it, that statuses does not have. The first that
// occurs counts.
var words = [...]struct {
	word   string
	status int
}{
	{"ratelimit", 429}, {"toomanyrequests", 429}, {"throttl", 429}, {"quotaexceeded", 429},
	{"overload", 529},
	{"unavailable", 503}, {"capacity", 503}, {"notready", 503}, {"busy", 503},
	{"timeout", 504}, {"timedout", 504},
}

// maxText is how many bytes of a message are searched for words.
const maxText = 512

// statusOf returns the status that an error object, or an error text, stands for. A number that is a
// status counts first, then a known kind in a code, a status, a type or one of names, then a word in one
// of them, and at last a word in the message. A kind that only says that the server failed is less than a
// word in the message, such as overloaded.
func statusOf(value json.RawMessage, names ...string) int {
	var e struct {
		Code, Status, Type, Message, Msg, Detail, ErrorText json.RawMessage

		StatusCode json.RawMessage `json:"status_code"`
		HTTPStatus json.RawMessage `json:"http_status_code"`
		ErrorCode  json.RawMessage `json:"error_code"`
		ErrorType  json.RawMessage `json:"error_type"`
		ErrorMsg   json.RawMessage `json:"error_msg"`
		Error      json.RawMessage
	}
	if json.Unmarshal(value, &e) != nil {
		return statusOfText(append(names, text(value))...)
	}
	kinds := append([]string{text(e.Code), text(e.StatusCode), text(e.HTTPStatus), text(e.ErrorCode), text(e.Status), text(e.Type), text(e.ErrorType)}, names...)
	for _, kind := range kinds {
		if n := statusNumber(kind); n != 0 {
			return n
		}
	}
	failed := false
	for _, kind := range kinds {
		switch status, known := statuses[plain(kind)]; {
		case known && status != unknownError:
			return status
		case known:
			failed = true
		}
	}
	if !failed && isError(e.Error) {
		return statusOf(e.Error)
	}
	return statusOfText(append(kinds, text(e.Message), text(e.Msg), text(e.ErrorMsg), text(e.Detail), text(e.ErrorText))...)
}

// statusNumber returns the status of an error that text is, or 0.
func statusNumber(text string) int {
	if n, err := strconv.Atoi(text); err == nil && n >= 400 && n <= 599 {
		return n
	}
	return 0
}

// statusOfKind returns the status that a kind of error stands for, or 0 if it is not known.
func statusOfKind(kind string) int {
	if status, known := statuses[plain(kind)]; known {
		return status
	}
	if status := statusOfText(kind); status != unknownError {
		return status
	}
	return 0
}

// statusOfCode returns the status that a number stands for, or else a word in message.
func statusOfCode(number, message string) int {
	if status, known := statuses[number]; known {
		return status
	}
	return statusOfText(message)
}

// statusOfText returns the status of the first of texts that contains one of words.
func statusOfText(texts ...string) int {
	for _, t := range texts {
		t = plain(t[:min(len(t), maxText)])
		for i := range words {
			if strings.Contains(t, words[i].word) {
				return words[i].status
			}
		}
	}
	return unknownError
}

// text returns a JSON string or number as text; "" for another value.
func text(value json.RawMessage) string {
	var s string
	if json.Unmarshal(value, &s) == nil {
		return s
	}
	if isNumber(value) {
		return string(value)
	}
	return ""
}

// plain returns s in lower case without what separates its words, since the APIs write one kind in
// several ways: rate_limit_error, rate-limited, RateLimit.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'A' <= r && r <= 'Z':
			return r | 0x20
		case r == '_' || r == '-' || r == ' ' || r == '.':
			return -1
		}
		return r
	}, s)
}
