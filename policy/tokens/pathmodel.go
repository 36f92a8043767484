package tokens

import "bytes"

// PathForm is a form of paths that name a model.
type PathForm struct {
	Before string   // what precedes the name, from / to /
	After  []string // what follows it, one of these: "/" or ":" and more, or the rest of the path
	Source string
}

// pathForms are the known forms. A name is not empty.
var pathForms = [...]PathForm{
	{"/deployments/", []string{"/"}, "Azure OpenAI, \"REST API reference\"; LiteLLM and SAP AI Core have the same form"},
	{"/engines/", []string{"/"}, "openai-python before 1.0, `api_resources/abstract/engine_api_resource.py`"},
	{"/models/", []string{":"}, "Gemini API, \"models.generateContent\"; Vertex AI, `publishers/*/models/*:rawPredict`"},
	{"/tunedModels/", []string{":"}, "Gemini API, \"tunedModels.generateContent\""},
	{"/endpoints/", []string{":", "/invocations", "/invocations-response-stream"}, "Vertex AI, \"projects.locations.endpoints\"; Amazon SageMaker, \"InvokeEndpoint\""},
	{"/model/", []string{"/converse", "/converse-stream", "/invoke", "/invoke-with-response-stream", "/invoke-with-bidirectional-stream", "/count-tokens"}, "Amazon Bedrock, \"Converse\", \"InvokeModel\""},
	{"/models/", []string{"/predictions"}, "Replicate, \"models.predictions.create\""},
	{"/ai/run/", []string{""}, "Cloudflare Workers AI, \"REST API\""},
	{"/serving-endpoints/", []string{"/invocations"}, "Databricks, \"Query a serving endpoint\""},
	{"/v2/models/", []string{"/generate", "/generate_stream", "/infer"}, "Triton Inference Server, \"Generate extension\"; KServe"},
	{"/hf-inference/models/", []string{"/v1/chat/completions", "/pipeline/feature-extraction", ""}, "Hugging Face, \"HF Inference\""},
}

// PathForms returns the known forms. The slice belongs to the caller.
func PathForms() []PathForm { return append([]PathForm(nil), pathForms[:]...) }

// ModelInPath returns the name of the model in the path of a request, as received: with its
// percent-encoding. It returns nil if the path has none of the known forms.
func ModelInPath(path []byte) []byte {
	path, _, _ = bytes.Cut(path, []byte("?"))
	for i := range pathForms {
		if name := pathForms[i].find(path); name != nil {
			return name
		}
	}
	return nil
}

// find returns the name in a path of the form, or nil.
func (f *PathForm) find(path []byte) []byte {
	at := bytes.Index(path, []byte(f.Before))
	if at < 0 {
		return nil
	}
	rest := path[at+len(f.Before):]
	for _, after := range f.After {
		if n := endOfName(rest, after); n > 0 {
			return rest[:n]
		}
	}
	return nil
}

// endOfName returns where after follows in rest; 0 or less if it does not. A name before / or : has
// one segment.
func endOfName(rest []byte, after string) int {
	switch after {
	case "/":
		return bytes.IndexByte(rest, '/')
	case ":":
		if bytes.IndexByte(rest, '/') >= 0 || bytes.HasSuffix(rest, []byte(":")) {
			return 0
		}
		n := bytes.LastIndexByte(rest, ':')
		return max(n, bytes.LastIndex(rest, []byte("%3A")), bytes.LastIndex(rest, []byte("%3a")))
	}
	if !bytes.HasSuffix(rest, []byte(after)) {
		return 0
	}
	return len(rest) - len(after)
}

// ReadPath takes the model from the path of a request, if that names one. It takes precedence over
// the one in the body: upstreams with such paths ignore that. Call it after Reset, before Read.
func (r *Request) ReadPath(path []byte) {
	name := ModelInPath(path)
	n := 0
	for i := 0; i < len(name); i++ {
		if n == len(r.model) {
			return // too long: ignored, as in a body
		}
		c := name[i]
		if c == '%' && i+2 < len(name) {
			hi, ok := hexDigit(name[i+1])
			if lo, ok2 := hexDigit(name[i+2]); ok && ok2 {
				c = hi<<4 | lo
				i += 2
			}
		}
		r.model[n] = c
		n++
	}
	r.modelLen = uint8(n)
	r.finish()
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case isDigit(c):
		return c - '0', true
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10, true
	}
	return 0, false
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
