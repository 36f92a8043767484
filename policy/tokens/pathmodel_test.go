package tokens

import (
	"strings"
	"testing"
)

// Each form of a path names the model that a body would name.
func TestThePathNamesTheModel(t *testing.T) {
	for path, want := range map[string]string{
		"/openai/deployments/gpt-4o/chat/completions?api-version=2024-10-21":                        "gpt-4o",
		"/openai/deployments/gpt-4o":                                                                "",
		"/v2/inference/deployments/d41/chat/completions":                                            "d41",
		"/v1/engines/davinci/completions":                                                           "davinci",
		"/v1beta/models/gemini-2.5-flash:generateContent":                                           "gemini-2.5-flash",
		"/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse":                             "gemini-2.5-flash",
		"/v1beta/models/gemini-2.5-flash%3AgenerateContent":                                         "gemini-2.5-flash",
		"/v1beta/tunedModels/mine-42:generateContent":                                               "mine-42",
		"/v1/projects/p/locations/l/publishers/google/models/gemini-2.5-pro:countTokens":            "gemini-2.5-pro",
		"/v1/projects/p/locations/l/publishers/anthropic/models/claude-x@20250514:streamRawPredict": "claude-x@20250514",
		"/v1/projects/p/locations/l/endpoints/123:predict":                                          "123",
		"/v1/projects/p/locations/l/endpoints/openapi/chat/completions":                             "",
		"/endpoints/llama/invocations":                                                              "llama",
		"/model/anthropic.claude-v2%3A1/converse":                                                   "anthropic.claude-v2:1",
		"/model/anthropic.claude-v2:1/converse-stream":                                              "anthropic.claude-v2:1",
		"/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Ainference-profile%2Fx/invoke":                 "arn:aws:bedrock:eu-west-1:1:inference-profile/x",
		"/model/m/invoke-with-response-stream":                                                      "m",
		"/v1/models/meta/llama-3/predictions":                                                       "meta/llama-3",
		"/client/v4/accounts/a/ai/run/@cf/meta/llama-3":                                             "@cf/meta/llama-3",

		"/serving-endpoints/dbrx/invocations":                         "dbrx",
		"/v2/models/triton/generate_stream":                           "triton",
		"/v2/models/triton/infer":                                     "triton",
		"/hf-inference/models/meta-llama/Llama-3":                     "meta-llama/Llama-3",
		"/hf-inference/models/meta-llama/Llama-3/v1/chat/completions": "meta-llama/Llama-3",

		"/v1/models/gpt-4o":           "",
		"/v2/models/triton":           "",
		"/serving-endpoints/dbrx":     "",
		"/v1/models":                  "",
		"/v1/models/":                 "",
		"/v1/models/:generateContent": "",
		"/v1/models/x:":               "",
		"/openai/deployments//chat":   "",
		"/model//invoke":              "",
		"/model/m/other":              "",
		"/v1/chat/completions":        "",
		"/v1/chat?x=/deployments/m/":  "",
		"/deployments/a%zz%4/x":       "a%zz%4",
		"/deployments/" + strings.Repeat("x", MaxModel) + "/x":   strings.Repeat("x", MaxModel),
		"/deployments/" + strings.Repeat("x", MaxModel+1) + "/x": "",
		"/deployments/" + strings.Repeat("%78", MaxModel) + "/x": strings.Repeat("x", MaxModel),
		"":  "",
		"*": "",
	} {
		var r Request
		r.Reset(WantModel)
		r.ReadPath([]byte(path))
		if got := string(r.Model()); got != want || r.Done() != (want != "") {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	for _, f := range PathForms() {
		if f.Source == "" {
			t.Errorf("%s has no source", f.Before)
		}
	}
}

// The path counts if both name a model. The body is read on for what else is wanted.
func TestThePathTakesPrecedenceOverTheBody(t *testing.T) {
	var r Request
	r.Reset(WantModel | WantOutput)
	r.ReadPath([]byte("/openai/deployments/d/chat/completions"))
	r.Read([]byte(`{"model":"m","max_tokens":5}`))
	if string(r.Model()) != "d" || r.Output != 5 || !r.Done() {
		t.Errorf("%s %d", r.Model(), r.Output)
	}
}
