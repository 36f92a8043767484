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
	"nothing":                  {"", Pending, 0},
	"comments":                 {": keep-alive\n\n: OPENROUTER PROCESSING\n\n", Pending, 0},
	"beyond what is read":      {": " + strings.Repeat("x", maxRead) + "\n\ndata: hello\n\n", Pending, 0},
	"half an event":            {`data: {"a":1}` + "\n", Pending, 0},
	"a mark at the beginning":  {"\ufeffdata: {\"error\":{\"type\":\"overloaded_error\"}}\n\n", Failed, 529},
	"half a line end":          {"data: x\r\n\r", Pending, 0},
	"an event without data":    {"event: open\nid: 1\nretry: 10\n\n", Pending, 0},
	"plain text":               {"data: hello\n\n", Content, 0},
	"lines that end with CR":   {"data: hello\r\rdata", Content, 0},
	"lines that end with CRLF": {"\ufeff: c\r\n\r\ndata:hello\r\n\r\n", Content, 0},
	"[DONE]":                   {"data: [DONE]\n\n", Content, 0},
	"any object":               {`data: {"price":1}` + "\n\n", Content, 0},
	"an error that is none":    {`data: {"error":false,"x":1}` + "\n\n", Content, 0},
	"broken JSON":              {`data: {"error":` + "\n\n", Content, 0},
	"10 000 levels":            {`data: {"error":` + strings.Repeat("[", 10_001) + "\n\n", Content, 0},

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
		for range 20 {
			var r Reader
			got := Pending
			for at := 0; at < len(tc.stream) && got == Pending; {
				at = min(at+1+random.IntN(40), len(tc.stream))
				got = r.Read([]byte(tc.stream[:at]))
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
		switch r.Read([]byte(stream)) {
		case Pending, Content:
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
		"event: ping\n": false, anthropicPing + "event": false, anthropicPing + ": half a comment": false, ": comment\ndata: {}\n": false, ": comment\r": false,
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
