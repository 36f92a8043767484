// Package tokens reads what a request to a language model's API asks for, and how many tokens its
// response reports as used. It reads bodies as they pass and keeps nothing of them.
//
// Request reads a request: the model, which its path or its body names, and the maximum output.
// Usage reads the body of a response, JSON or an event stream. Both know the APIs of OpenAI (Chat Completions, Responses) and
// Anthropic (Messages), and compatible ones. Nothing here is an error: what cannot be read is
// ignored.
package tokens

import "github.com/retryproxy/retryproxy/policy/jsonscan"

// MaxLook is how many bytes of a body Request reads.
const MaxLook = 64 << 10

// bytesPerToken estimates input tokens. Source: OpenAI, "What are tokens": 4 characters of English.
const bytesPerToken = 4

// Estimate returns the approximate number of tokens in that many bytes of a request.
func Estimate(bytes int64) int64 { return (max(bytes, 0) + bytesPerToken - 1) / bytesPerToken }

const (
	idModel jsonscan.ID = iota + 1
	idMaxTokens
	idMaxCompletionTokens
	idMaxOutputTokens
	idStream
	idConfig
)

// requestNames returns the members of a request that are read. Sources: OpenAI "Create chat
// completion", "Create a model response"; Anthropic "Messages"; Gemini "GenerationConfig"; Amazon
// Bedrock "InferenceConfiguration".
func requestNames(parent jsonscan.ID, key []byte) jsonscan.ID {
	switch parent {
	case jsonscan.Root:
		switch string(key) {
		case "generationConfig", "generation_config", "inferenceConfig":
			return idConfig
		case "model":
			return idModel
		case "max_tokens":
			return idMaxTokens
		case "max_completion_tokens":
			return idMaxCompletionTokens
		case "max_output_tokens":
			return idMaxOutputTokens
		case "stream":
			return idStream
		}
	case idConfig:
		switch string(key) {
		case "maxOutputTokens", "max_output_tokens", "maxTokens":
			return idMaxOutputTokens
		}
	}
	return 0
}

// MaxModel is the maximum length of a model name in bytes.
const MaxModel = jsonscan.MaxText

// Request reads the body of a request. Of equal members the first counts. It is not safe for
// concurrent use. Call Reset before each body.
type Request struct {
	scan     jsonscan.Scanner
	model    [MaxModel]byte
	modelLen uint8
	size     size
	Output   int64 // maximum output tokens; 0: not stated
	Stream   bool  // the request asks for an event stream
	done     bool
	want     Want
}

// Want is what a Request looks for.
type Want uint8

// What a Request can look for. It stops once it has found that.
const (
	WantModel  Want = 1 << iota // the model
	WantOutput                  // the maximum output
	WantInput                   // the size of the input: everything up to MaxLook
)

// Reset prepares for a new body.
func (r *Request) Reset(want Want) {
	r.scan = jsonscan.New(requestNames)
	r.modelLen, r.size, r.Output, r.Stream, r.done, r.want = 0, size{}, 0, false, false, want
}

// Model returns the name of the model, or nil if neither path nor body state it. It is valid until
// Reset.
func (r *Request) Model() []byte {
	if r.modelLen == 0 {
		return nil
	}
	return r.model[:r.modelLen]
}

// Done reports whether the rest of the body is of no interest.
func (r *Request) Done() bool { return r.done }

// Input estimates the tokens of the input, for a body of length bytes; below 0: unknown.
func (r *Request) Input(length int64) int64 { return r.size.tokens(length) }

// Read processes the next piece of the body.
func (r *Request) Read(piece []byte) {
	if r.done {
		return
	}
	piece = piece[:min(len(piece), MaxLook-int(r.size.read))]
	r.size.add(piece)
	for !r.done && r.scan.State() == jsonscan.StateOpen {
		n, v, found := r.scan.Next(piece)
		piece = piece[n:]
		if !found {
			break
		}
		r.take(&v)
	}
	r.done = r.done || r.size.read == MaxLook || r.want&WantInput == 0 && r.scan.State() != jsonscan.StateOpen
}

func (r *Request) take(v *jsonscan.Value) {
	switch v.ID {
	case idModel:
		if v.Kind == jsonscan.String && r.modelLen == 0 {
			r.modelLen = uint8(copy(r.model[:], v.Text))
		}
	case idStream:
		r.Stream = r.Stream || v.True
	default:
		if n, ok := v.Int(); ok && r.Output == 0 {
			r.Output = n
		}
	}
	r.finish()
}

// finish ends the look if everything wanted was found.
func (r *Request) finish() {
	r.done = r.want&WantInput == 0 && (r.want&WantModel == 0 || r.modelLen > 0) && (r.want&WantOutput == 0 || r.Output > 0)
}
