package eventstream

import (
	"math/rand/v2"
	"strings"
	"testing"
)

const (
	anthropicStart = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"content\":[],\"usage\":{\"input_tokens\":25}}}\n\n"
	anthropicBlock = "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"
	anthropicPing  = "event: ping\ndata: {\"type\": \"ping\"}\n\n"
	anthropicText  = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n"
	openaiRole     = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},\"finish_reason\":null}]}\n\n"
	openaiText     = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":null}]}\n\n"
	responsesStart = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"error\":null}}\n\nevent: response.in_progress\ndata: {\"type\":\"response.in_progress\",\"response\":{\"error\":null}}\n\n"
)

var streams = map[string]struct {
	stream string
	want   Verdict
	status int
}{
	"nothing":                    {"", Pending, 0},
	"comments":                   {": keep-alive\n\n: OPENROUTER PROCESSING\n\n", Pending, 0},
	"beyond what is read":        {": " + strings.Repeat("x", maxRead) + "\n\ndata: hello\n\n", Pending, 0},
	"half an event":              {`data: {"a":1}` + "\n", Pending, 0},
	"a mark at the beginning":    {"\ufeffdata: {\"error\":{\"type\":\"overloaded_error\"}}\n\n", Failed, 529},
	"half a line end":            {"data: x\r\n\r", Content, 0},
	"half an event's line end":   {"data: x\r", Pending, 0},
	"an error that ends with CR": {"data: {\"error\":{\"type\":\"overloaded_error\"}}\r\r", Failed, 529},
	"pings that end with CR":     {"event: ping\rdata: {\"type\":\"ping\"}\r\r: c\r\rdata: {\"error\":{\"code\":503}}\r\r", Failed, 503},
	"an event without data":      {"event: open\nid: 1\nretry: 10\n\n", Pending, 0},
	"plain text":                 {"data: hello\n\n", Content, 0},
	"lines that end with CR":     {"data: hello\r\rdata", Content, 0},
	"lines that end with CRLF":   {"\ufeff: c\r\n\r\ndata:hello\r\n\r\n", Content, 0},
	"[DONE]":                     {"data: [DONE]\n\n", Content, 0},
	"any object":                 {`data: {"price":1}` + "\n\n", Content, 0},
	"an error that is none":      {`data: {"error":false,"x":1}` + "\n\n", Content, 0},
	"broken JSON":                {`data: {"error":` + "\n\n", Content, 0},
	"10 000 levels":              {`data: {"error":` + strings.Repeat("[", 10_001) + "\n\n", Content, 0},

	"Anthropic before text":       {anthropicStart + anthropicBlock + anthropicPing, Pending, 0},
	"Anthropic with text":         {anthropicStart + anthropicBlock + anthropicPing + anthropicText, Content, 0},
	"Anthropic stops at once":     {anthropicStart + "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", Content, 0},
	"Anthropic is overloaded":     {anthropicStart + anthropicPing + "event: error\ndata: {\"type\": \"error\", \"error\": {\"type\": \"overloaded_error\", \"message\": \"Overloaded\"}}\n\n", Failed, 529},
	"Anthropic limits":            {"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"slow\"}}\n\n", Failed, 429},
	"Anthropic fails":             {"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"x\"}}\n\n", Failed, 500},
	"an error after text":         {anthropicText + "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n", Content, 0},
	"an error event without JSON": {"event: error\ndata: internal\n\n", Failed, 500},

	"OpenAI before text":           {openaiRole, Pending, 0},
	"OpenAI with text":             {openaiRole + openaiText, Content, 0},
	"OpenAI calls a tool":          {strings.Replace(openaiRole, `"refusal":null`, `"tool_calls":[{"index":0}]`, 1), Content, 0},
	"OpenAI ends at once":          {strings.Replace(openaiRole, `"finish_reason":null`, `"finish_reason":"length"`, 1), Content, 0},
	"OpenAI fails":                 {`data: {"error":{"message":"The server had an error","type":"server_error","param":null,"code":null}}` + "\n\n", Failed, 500},
	"OpenAI has no quota":          {`data: {"error":{"message":"quota","type":"insufficient_quota","code":"insufficient_quota"}}` + "\n\n", Failed, 429},
	"Azure filters first":          {`data: {"object":"chat.completion.chunk","choices":[],"prompt_filter_results":[{}]}` + "\n\n", Pending, 0},
	"OpenRouter names a status":    {`data: {"error":{"code":502,"message":"provider"}}` + "\n\n", Failed, 502},
	"Responses before text":        {responsesStart, Pending, 0},
	"Responses with text":          {responsesStart + "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"Hi\"}\n\n", Content, 0},
	"Responses fails":              {responsesStart + "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"slow\"}}}\n\n", Failed, 429},
	"Responses is overloaded":      {responsesStart + "data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"server_is_overloaded\",\"message\":\"x\"}}}\n\n", Failed, 503},
	"Responses has an error event": {"event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"x\",\"sequence_number\":1}\n\n", Failed, 500},
	"Gemini is unavailable":        {`data: {"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}` + "\r\n\r\n", Failed, 503},
	"Gemini, by name alone":        {`data: {"error": {"message": "x", "status": "RESOURCE_EXHAUSTED"}}` + "\n\n", Failed, 429},
	"the prompt is refused":        {`data: {"error":{"type":"invalid_request_error","message":"no"}}` + "\n\n", Failed, 400},
	"data of several lines":        {"data: {\"error\":\ndata: {\"type\":\"overloaded_error\"}}\n\n", Failed, 529},
}

// errorForms are errors before any content, as the APIs and gateways send them.
var errorForms = map[string]struct {
	data   string
	status int
}{
	"vLLM":                       {`{"object":"error","message":"x","type":"BadRequestError","param":null,"code":400}`, 400},
	"vLLM without a number":      {`{"object":"error","message":"x","type":"InternalServerError","code":null}`, 500},
	"Mistral":                    {`{"object":"error","message":"Requests rate limit exceeded","type":"rate_limited","param":null,"code":"1300"}`, 429},
	"Mistral has no capacity":    {`{"object":"error","message":"Service tier capacity exceeded for this model.","type":"invalid_request_error","code":"3505"}`, 429},
	"Cohere or a gateway":        {`{"error":{"type":"rate_limited"}}`, 429},
	"another spelling":           {`{"error":{"type":"RateLimit-Error"}}`, 429},
	"an unknown kind":            {`{"error":{"code":"upstream_overload_protection"}}`, 529},
	"a text":                     {`{"error":"Too Many Requests"}`, 429},
	"a text of unknown kind":     {`{"error":"oops"}`, 500},
	"a message":                  {`{"error":{"message":"The engine is currently overloaded, please try again later","type":null}}`, 529},
	"an error that is true":      {`{"error":true,"message":"Rate limit reached"}`, 429},
	"LiteLLM, a number as text":  {`{"error":{"message":"x","type":"None","param":"None","code":"429"}}`, 429},
	"a status that is a number":  {`{"error":{"message":"x","status":503}}`, 503},
	"an error in an error":       {`{"error":{"message":"x","error":{"type":"overloaded_error"}}}`, 529},
	"OpenRouter in a choice":     {`{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":""},"error":{"code":429,"message":"x"}}]}`, 429},
	"OpenRouter beside a choice": {`{"object":"chat.completion.chunk","error":{"code":"server_error","message":"x"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}`, 500},
	"Responses without a reason": {`{"type":"response.failed","response":{"error":null}}`, 500},
	"Codex's usage limit":        {`{"type":"response.failed","response":{"error":{"code":"usage_limit_reached"}}}`, 429},
	"Codex's context length":     {`{"type":"response.failed","response":{"error":{"code":"context_length_exceeded"}}}`, 400},
	"Cloudflare":                 {`{"errors":[{"message":"AiError: Capacity temporarily exceeded","code":3040}],"success":false,"result":{}}`, 429},
	"MiniMax":                    {`{"choices":null,"base_resp":{"status_code":1002,"status_msg":"rate limit"}}`, 429},
	"MiniMax, an unknown number": {`{"base_resp":{"status_code":1000,"status_msg":"unknown error"}}`, 500},
	"Baidu":                      {`{"error_code":18,"error_msg":"Open api qps request limit reached","id":"x"}`, 429},
	"Zhipu":                      {`{"error":{"code":"1302","message":"x"}}`, 429},
	"members of other types":     {`{"type":5,"response":"x","error":{"type":"overloaded_error"}}`, 529},
	"Gemini inside Code Assist":  {`{"response":{"error":{"code":429}}}`, 429},
	"Gemini, an array":           {`[{"error":{"code":503,"message":"x","status":"UNAVAILABLE"}}]`, 503},
	"Alibaba":                    {`{"code":"Throttling.RateQuota","message":"x","request_id":"y"}`, 429},
	"Dify":                       {`{"event":"error","status":429,"code":"x","message":"y"}`, 429},
	"Amazon Bedrock":             {`{"throttlingException":{"message":"Too many requests"}}`, 429},
	"Bedrock is not there":       {`{"serviceUnavailableException":{"message":"x"}}`, 503},
	"FastAPI":                    {`{"detail":"Rate limit exceeded"}`, 429},
	"DeepInfra":                  {`{"choices":null,"error_message":"Model busy, retry later"}`, 503},
	"a code and a message":       {`{"code":429,"message":"slow"}`, 429},
	"a status and a message":     {`{"status":"503","message":"x"}`, 503},
	"a status in camel case":     {`{"statusCode":429,"message":"x"}`, 429},
	"AI SDK":                     {`{"type":"error","errorText":"rate limit"}`, 429},
	"Anthropic, in the message":  {`{"type":"error","error":{"type":"api_error","message":"Overloaded"}}`, 529},
	"Groq":                       {`{"error":{"message":"llama is currently over capacity. Please try again.","type":"internal_server_error"}}`, 503},
	"OpenAI, in the message":     {`{"error":{"message":"That model is currently overloaded with other requests.","type":"server_error","code":null}}`, 529},
	"Mistral's agents":           {`{"type":"conversation.response.error","message":"x","code":429}`, 429},
	"watsonx":                    {`{"errors":[{"code":"x","message":"y"}],"status_code":429}`, 429},
	"Cohere, version 2":          {`{"type":"message-end","delta":{"error":"rate limit exceeded","finish_reason":"ERROR"}}`, 429},
	"Cohere gives no reason":     {`{"type":"message-end","delta":{"finish_reason":"ERROR","usage":{}}}`, 500},
	"an end that is an error":    {`{"choices":[{"delta":{"content":""},"finish_reason":"error"}]}`, 500},
	"DeepSeek has no resources":  {`{"object":"chat.completion.chunk","choices":[{"delta":{"content":""},"finish_reason":"insufficient_system_resource"}]}`, 503},
	"Text Generation Inference":  {`{"error":"Model is overloaded","error_type":"overloaded"}`, 529},
	"a status for HTTP":          {`{"error":{"message":"x","http_status_code":429}}`, 429},
}

func TestErrorForms(t *testing.T) {
	for name, tc := range errorForms {
		var r Reader
		if got := r.Read([]byte("data: " + tc.data + "\n\n")); got != Failed || r.Status() != tc.status {
			t.Errorf("%s: verdict %d, status %d, want %d", name, got, r.Status(), tc.status)
		}
	}
	var r Reader
	if r.Read([]byte("id:1\nevent:error\n:HTTP_STATUS/429\ndata:{\"code\":\"Throttling.RateQuota\",\"message\":\"x\"}\n\n")) != Failed || r.Status() != 429 {
		t.Errorf("Alibaba: status %d", r.Status())
	}
	for event, want := range map[string]int{
		"event: error\ndata: Rate limit exceeded": 429, "event: throttlingException\ndata: {\"message\":\"x\"}": 429, "event: error\ndata: {\"detail\":\"Model is overloaded\"}": 529, "event: response.error\ndata: busy": 503,
	} {
		r = Reader{}
		if r.Read([]byte(event+"\n\n")) != Failed || r.Status() != want {
			t.Errorf("%s: status %d", event, r.Status())
		}
	}
}

// Chunks that carry nothing of the model are no content. With a text in the place of TEXT they are.
func TestEmptyChunks(t *testing.T) {
	for name, data := range map[string]string{
		"Azure's filters":       `{"choices":[TEXT],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0}]}`,
		"OpenAI":                `{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":TEXT,"refusal":null},"logprobs":null,"finish_reason":null}]}`,
		"a role in the end":     `{"object":"chat.completion.chunk","choices":[{"index":0,"finish_reason":TEXT,"delta":{"role":"assistant"}}]}`,
		"OpenAI, a list":        `{"object":"chat.completion.chunk","choices":[{"delta":{"content":[{"type":"text","text":TEXT}]}}]}`,
		"vLLM and DeepSeek":     `{"object":"chat.completion.chunk","choices":[{"delta":{"role":"assistant","content":"","reasoning_content":TEXT}}]}`,
		"Together":              `{"object":"chat.completion.chunk","choices":[{"index":0,"text":TEXT,"delta":{"token_id":12,"role":"assistant","content":""},"finish_reason":null}]}`,
		"a name without object": `{"id":"x","choices":[{"index":0,"delta":{"role":"assistant","content":TEXT}}]}`,
		"Completions":           `{"object":"text_completion","choices":[{"index":0,"text":TEXT,"logprobs":null,"finish_reason":null}]}`,
		"Gemini":                `{"candidates":[{"content":{"role":"model","parts":[{"text":TEXT}]},"index":0,"safetyRatings":[{"category":"x"}]}],"usageMetadata":{"promptTokenCount":5}}`,
		"Gemini's usage":        `{"usageMetadata":{"promptTokenCount":5},"promptFeedback":TEXT,"modelVersion":"x"}`,
		"Gemini in Code Assist": `{"response":{"candidates":[{"content":{"role":"model","parts":[{"text":TEXT}]}}]},"traceId":"x"}`,
		"Anthropic's text":      `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":TEXT}}`,
		"Anthropic's input":     `{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":TEXT}}`,
		"Anthropic's thinking":  `{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":TEXT}}`,
		"Responses":             `{"type":"response.output_text.delta","item_id":"x","delta":TEXT,"obfuscation":"xyz"}`,
		"Cohere's delta":        `{"type":"content-delta","index":0,"delta":{"message":{"content":{"text":TEXT}}}}`,
	} {
		for text, want := range map[string]Verdict{`""`: Pending, `null`: Pending, `"Hi"`: Content} {
			if name == "Azure's filters" {
				text = map[string]string{`""`: "", `null`: "null", `"Hi"`: `{"delta":{"content":"Hi"}}`}[text]
			}
			var r Reader
			event := "data: " + strings.ReplaceAll(data, "TEXT", text) + "\n\n"
			if got := r.Read([]byte(event)); got != want {
				t.Errorf("%s: verdict %d, want %d: %s", name, got, want, event)
			}
		}
	}
	for _, data := range []string{
		`{"type":"message-start","id":"x","delta":{"message":{"role":"assistant","content":[]}}}`, `{"type":"content-start","index":0,"delta":{"message":{"content":{"type":"text","text":""}}}}`,
		`{"is_finished":false,"event_type":"stream-start","generation_id":"x"}`, `{"type":"response.reasoning_summary_part.added"}`, `{"type":"heartbeat"}`, `{"type":"response.keep_alive"}`, `{"type":"keepalive","sequence_number":3}`, `{"object":"chat.completion.chunk","choices":null}`,
		`{}`, `[]`, `null`, `{"type":"response.mcp_list_tools.in_progress","item_id":"x"}`, `{"type":"conversation.response.started","conversation_id":"x"}`,
		`{"output":{"choices":[{"message":{"content":"","role":"assistant"},"finish_reason":"null"}]},"request_id":"x"}`, `{"output":{"text":"","finish_reason":"null"}}`,
		`{"model_id":"x","results":[{"generated_text":"","generated_token_count":0,"stop_reason":"NOT_FINISHED"}]}`, `{"event":{"event_type":"start","delta":{"text":"","type":"text"}}}`,
	} {
		var r Reader
		if got := r.Read([]byte("data: " + data + "\n\n")); got != Pending {
			t.Errorf("%s: verdict %d", data, got)
		}
	}
	for _, data := range []string{
		`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{}}`, `{"type":"price.delta","delta":5}{`, `{"type":"delta"}`, `{"choices":"x"}`, `{"errors":[],"x":1}`, `{"error_code":0}`,
		`{"candidates":[{"content":{"parts":[{"functionCall":{"name":"x"}}]}}]}`, `{"candidates":[{"content":{},"finishReason":"STOP"}]}`,
		`{"output":{"text":"Hi","finish_reason":"null"}}`, `{"results":[{"generated_text":"","stop_reason":"eos_token"}]}`, `{"event":{"event_type":"progress","delta":{"text":"x"}}}`,
		`{"code":200,"message":"x"}`, `{"code":"print(429)","message":"x"}`, `{"message":"Rate limits are a technique"}`, `{"detail":"All is well"}`, `{"detail":"Rate limit","text":"x"}`, `{"status":"in_progress"}`,
		`{"type":"response.mcp_call.failed"}`, `{"choices":[{"delta":{"content":"Hi"},"finish_reason":"error"}]}`, `{"choices":[{"delta":{"content":"x"}}],"code":429}`, `[{"a":1}]`, `[{"error":{"code":429}},{"a":1}]`,
		`{"candidates":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`,
	} {
		var r Reader
		if got := r.Read([]byte("data: " + data + "\n\n")); got != Content {
			t.Errorf("%s: verdict %d", data, got)
		}
	}
}

// An error at the end of a stream counts without the empty line that should follow it.
func TestReadEnd(t *testing.T) {
	for stream, want := range map[string]int{
		"data: {\"error\":{\"code\":429}}":                   429,
		anthropicPing + "data: {\"error\":{\"code\":429}}\r": 429,
		"event: error\ndata: overloaded\n":                   529,
		"{\"error\":{\"code\":429}}":                         429,
		"\n[{\"error\":{\"code\":429}}]\n":                   429,
		": c\n\n\n {\n\"error\": {\"code\": 429}\n}\n":       429,
		"":                  0,
		anthropicPing:       0,
		"data: {\"error\":": 0,
		"data: hello":       0,
		"{\"a\":1}":         0,
	} {
		var r Reader
		if got := r.Read([]byte(stream)); got != Pending {
			t.Fatalf("%q: %d before its end", stream, got)
		}
		got := r.ReadEnd([]byte(stream))
		if want == 0 && got != Content || want != 0 && (got != Failed || r.Status() != want || len(r.Error([]byte(stream))) == 0) {
			t.Errorf("%q: verdict %d, status %d, want status %d", stream, got, r.Status(), want)
		}
	}
}

// A prelude of a size just below MaxHeld is read to its end.
func TestALongPrelude(t *testing.T) {
	long := strings.Repeat("x", MaxHeld/2-1000)
	stream := ""
	for _, kind := range []string{"response.created", "response.in_progress"} {
		stream += "event: " + kind + "\ndata: {\"type\":\"" + kind + "\",\"response\":{\"error\":null,\"instructions\":\"" + long + "\"}}\n\n"
	}
	stream += "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"server_is_overloaded\"}}}\n\n"
	var r Reader
	if len(stream) > MaxHeld || r.Read([]byte(stream)) != Failed || r.Status() != 503 {
		t.Errorf("status %d after %d bytes", r.Status(), len(stream))
	}
}

func TestReadFindsTheFirstContentOrError(t *testing.T) {
	for name, tc := range streams {
		var r Reader
		if got := r.Read([]byte(tc.stream)); got != tc.want || r.Status() != tc.status {
			t.Errorf("%s: verdict %d, status %d, want %d, %d", name, got, r.Status(), tc.want, tc.status)
		}
	}
}

// The result does not depend on how the stream is split.
func TestReadDoesNotDependOnPieces(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, tc := range streams {
		stream := []byte(tc.stream)
		for range 20 {
			var r Reader
			got := Pending
			for at := 0; at < len(tc.stream) && got == Pending; {
				at = min(at+1+random.IntN(40), len(tc.stream))
				got = r.Read(stream[:at])
			}
			if got != tc.want || r.Status() != tc.status {
				t.Fatalf("%s: verdict %d, status %d, want %d, %d", name, got, r.Status(), tc.want, tc.status)
			}
		}
	}
}

func TestReadTellsWhereTheErrorStands(t *testing.T) {
	const data = `{"error":{"code":429,"message":"try again in 6s"}}`
	stream := anthropicPing + "id: 7\ndata: " + data + "\n\nmore"
	var r Reader
	if r.Read([]byte(stream)) != Failed || string(r.Error([]byte(stream))) != data {
		t.Errorf("%q", r.Error([]byte(stream)))
	}
}

// For any input, an error has a status and a position in the stream.
func FuzzRead(f *testing.F) {
	for _, tc := range streams {
		f.Add(tc.stream)
	}
	f.Fuzz(func(t *testing.T, stream string) {
		var r Reader
		verdict := r.Read([]byte(stream))
		if verdict == Pending {
			verdict = r.ReadEnd([]byte(stream))
		}
		switch verdict {
		case Content:
		case Failed:
			if data := r.Error([]byte(stream)); r.Status() < 400 || r.Status() > 599 || len(data) == 0 {
				t.Errorf("status %d, data %q", r.Status(), data)
			}
		default:
			t.Error("a verdict outside the set")
		}
	})
}

// An event of thousands of lines, sent byte by byte, costs one pass: nothing is joined before the
// event is complete, and no line is copied twice.
func TestTinyPiecesCostNoSecondPass(t *testing.T) {
	stream := []byte(strings.Repeat("data:\n", MaxHeld/6))
	whole := append(stream, '\n')
	allocations := testing.AllocsPerRun(1, func() {
		var r Reader
		for n := range stream {
			if v := r.Read(stream[:n]); v != Pending || int(r.searched) != n {
				t.Fatalf("%d of %d bytes searched, verdict %d", r.searched, n, v)
			}
		}
		if r.Read(whole) != Content {
			t.Fatal("no content")
		}
	})
	if allocations > 50 {
		t.Errorf("%v allocations", allocations)
	}
}

func TestIsBetweenEvents(t *testing.T) {
	for stream, want := range map[string]bool{
		"": true, anthropicStart: true, anthropicStart + anthropicPing: true, ": comment\n": true, ": a\r\n: b\r\n\r\n": true, anthropicPing + ":\n": true, "\ufeff: a\n": true,
		"event: ping\n": false, anthropicPing + "event": false, anthropicPing + ": half a comment": false, ": comment\ndata: {}\n": false, ": comment\r": true, "event: ping\r": false, anthropicPing + "\r\n\r": true,
		": " + strings.Repeat("x", maxRead) + "\n\n": false,
	} {
		var r Reader
		if got := r.Read([]byte(stream)); got != Pending {
			t.Fatalf("%.40q: %v", stream, got)
		}
		if got := r.IsBetweenEvents([]byte(stream)); got != want {
			t.Errorf("%.40q: %v, want %v", stream, got, want)
		}
	}
}

// Comments before an event are not read again with each piece, whether they are long or many.
func TestCommentsCostNoSecondPass(t *testing.T) {
	for _, comment := range []string{":\n", ": a\r\n", ": " + strings.Repeat("x", 1000) + "\r"} {
		stream := []byte(anthropicPing + strings.Repeat(comment, 100))
		var r Reader
		for n := len(anthropicPing); n <= len(stream); n += len(comment) {
			if r.Read(stream[:n]) != Pending || !r.IsBetweenEvents(stream[:n]) || int(r.event) != n {
				t.Fatalf("%.9q: the event begins at %d of %d", comment, r.event, n)
			}
		}
	}
}
