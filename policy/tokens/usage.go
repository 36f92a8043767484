package tokens

import "github.com/retryproxy/retryproxy/policy/jsonscan"

// Count is what a response used, as counted by its upstream.
type Count struct {
	Input  int64 // without Cached
	Cached int64 // input that was read from a cache
	Output int64
}

// Any reports whether anything was used.
func (c Count) Any() bool { return c != Count{} }

// Total returns all tokens.
func (c Count) Total() int64 { return c.Input + c.Cached + c.Output }

// MaxCount limits each number of a Count; larger values are ignored.
const MaxCount = 10_000_000

// The members of a response that are read.
const (
	idUsage jsonscan.ID = iota + 1
	idMessage
	idDetails
	idPromptTokens
	idInputTokens
	idCompletionTokens
	idOutputTokens
	idCacheRead
	idCacheCreation
	idCachedTokens
	idThoughts
)

// usageNames returns the members of usage: OpenAI "The chat completion object", "The response
// object"; Anthropic "Messages"; Gemini "UsageMetadata"; Amazon Bedrock "TokenUsage". In a stream, usage is a member of an event, of its message
// (Anthropic's message_start) or of its response (OpenAI's response.completed).
func usageNames(parent jsonscan.ID, key []byte) jsonscan.ID {
	switch parent {
	case jsonscan.Root:
		switch string(key) {
		case "usage", "usageMetadata":
			return idUsage
		case "message", "response":
			return idMessage
		}
	case idMessage:
		if string(key) == "usage" {
			return idUsage
		}
	case idUsage:
		switch string(key) {
		case "prompt_tokens", "promptTokenCount":
			return idPromptTokens
		case "input_tokens", "inputTokens":
			return idInputTokens
		case "completion_tokens", "candidatesTokenCount":
			return idCompletionTokens
		case "output_tokens", "outputTokens":
			return idOutputTokens
		case "cache_read_input_tokens", "cacheReadInputTokens":
			return idCacheRead
		case "cache_creation_input_tokens", "cacheWriteInputTokens":
			return idCacheCreation
		case "cachedContentTokenCount":
			return idCachedTokens
		case "thoughtsTokenCount":
			return idThoughts
		case "prompt_tokens_details", "input_tokens_details":
			return idDetails
		}
	case idDetails:
		if string(key) == "cached_tokens" {
			return idCachedTokens
		}
	}
	return 0
}

// Usage reads the usage of one response from its body. It is not safe for concurrent use. Call
// Reset before each body.
//
// In an event stream the last number of each kind counts: Anthropic's message_start has the input,
// and its message_delta the output so far.
type Usage struct {
	scan   jsonscan.Scanner
	events bool // the body is an event stream
	line   lineState
	prefix uint8 // bytes of dataField that were read

	input, creation, cacheRead, cachedOf, output, thoughts int64 // -1: not stated
}

// lineState is the position of the next byte in a line of an event stream.
type lineState uint8

const (
	lineBegin lineState = iota
	lineField           // in a field name that may be data
	lineSpace           // before the one space that may precede the value
	lineData            // in the value of data
	lineOther           // in any other line
)

const dataField = "data:"

// Reset prepares for a new body.
func (u *Usage) Reset(events bool) {
	u.scan = jsonscan.New(usageNames)
	u.events, u.line, u.prefix = events, lineBegin, 0
	u.input, u.creation, u.cacheRead, u.cachedOf, u.output, u.thoughts = -1, -1, -1, -1, -1, -1
}

// Read processes the next piece of the body.
func (u *Usage) Read(piece []byte) {
	if !u.events {
		u.readJSON(piece)
		return
	}
	for len(piece) > 0 {
		piece = piece[u.readLine(piece):]
	}
}

// Count returns what was used, as far as the body states it. Impossible numbers are 0.
func (u *Usage) Count() (c Count) {
	c.Output = max(u.output, 0) + max(u.thoughts, 0)
	c.Cached = max(u.cacheRead, u.cachedOf, 0)
	c.Input = max(u.input, 0) + max(u.creation, 0)
	if u.cachedOf >= 0 && u.cacheRead < 0 { // OpenAI includes them in the input
		c.Cached = min(c.Cached, c.Input)
		c.Input -= c.Cached
	}
	return c
}

// Limited returns what counts towards a limit of tokens. Vendors whose input does not include what
// was read from a cache do not limit that: Anthropic, "Rate limits", and Amazon Bedrock, "Prompt
// caching".
func (u *Usage) Limited() (c Count) {
	c = u.Count()
	if u.cacheRead < 0 {
		c.Input += c.Cached
	}
	c.Cached = 0
	return c
}

// readJSON reads a piece of JSON text.
func (u *Usage) readJSON(piece []byte) {
	for {
		n, v, found := u.scan.Next(piece)
		if piece = piece[n:]; !found {
			return
		}
		u.take(&v)
	}
}

func (u *Usage) take(v *jsonscan.Value) {
	n, ok := v.Int()
	if !ok || n > MaxCount {
		return
	}
	switch v.ID {
	case idPromptTokens, idInputTokens:
		u.input = n
	case idCompletionTokens, idOutputTokens:
		u.output = n
	case idCacheRead:
		u.cacheRead = n
	case idCacheCreation:
		u.creation = n
	case idCachedTokens:
		u.cachedOf = n
	case idThoughts: // Gemini's output does not include them
		u.thoughts = n
	}
}

// readLine reads a part of a line of an event stream, and returns its length.
func (u *Usage) readLine(b []byte) int {
	switch u.line {
	case lineData, lineOther:
		n := 0
		for n < len(b) && b[n] != '\n' && b[n] != '\r' {
			n++
		}
		if u.line == lineData {
			u.readJSON(b[:n])
		}
		if n < len(b) {
			u.line = lineBegin
			n++
		}
		return n
	case lineSpace:
		u.line = lineData
		if b[0] == ' ' {
			return 1
		}
		return 0
	case lineBegin:
		u.prefix = 0
		if b[0] == '\n' || b[0] == '\r' { // the end of an event, or half of a CRLF
			return 1
		}
		u.line = lineField
	}
	return u.readField(b[0])
}

// readField reads a byte of a field name. Each data field begins a JSON text: no vendor splits one
// over several lines.
func (u *Usage) readField(c byte) int {
	if c != dataField[u.prefix] {
		u.line = lineOther
		return 0
	}
	if u.prefix++; int(u.prefix) == len(dataField) {
		u.line = lineSpace
		u.scan.Reset()
	}
	return 1
}
