package tokens

import (
	"encoding/json"
	"strings"
	"testing"
)

// look reads a body in pieces of size.
func look(body string, want Want, size int) *Request {
	r := &Request{}
	r.Reset(want)
	for b := []byte(body); len(b) > 0 && !r.Done(); {
		n := min(size, len(b))
		r.Read(b[:n])
		b = b[n:]
	}
	return r
}

func TestRequestSaysModelAndBound(t *testing.T) {
	for body, want := range map[string]struct {
		model  string
		output int64
		stream bool
	}{
		`{"model":"gpt-4o","messages":[],"max_tokens":100}`:                      {"gpt-4o", 100, false},
		`{"messages":[{"model":"no","max_tokens":9}],"stream":true,"model":"m"}`: {"m", 0, true},
		`{"model":"m","max_completion_tokens":7}`:                                {"m", 7, false},
		`{"model":"m","max_output_tokens":8,"max_tokens":9}`:                     {"m", 8, false},
		`{"model":"m","max_tokens":-1}`:                                          {"m", 0, false},
		`{"model":"m","max_tokens":99999999999999999999999}`:                     {"m", 0, false},
		`{"model":"first","model":"second"}`:                                     {"first", 0, false},
		`{"model":7,"max_tokens":"many"}`:                                        {"", 0, false},
		`{"model":"` + strings.Repeat("x", MaxModel+1) + `","max_tokens":3}`:     {"", 3, false},
		`[{"model":"m"}]`: {},
		"\x1f\x8b\x08":    {},
		"model=m":         {},
		"":                {},
		`{"x":"` + strings.Repeat("x", MaxLook) + `","model":"m"}`:                            {},
		`{"x":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `,"model":"m"}`: {},
	} {
		for _, size := range []int{1, 10, 1 << 20} {
			r := look(body, WantModel|WantOutput, size)
			if string(r.Model()) != want.model || r.Output != want.output || r.Stream != want.stream {
				t.Errorf("%.80s: %q %d %v", body, r.Model(), r.Output, r.Stream)
			}
		}
	}
}

func TestRequestLooksNoFurtherThanNeeded(t *testing.T) {
	r := &Request{}
	r.Reset(WantModel)
	if r.Read([]byte(`{"model":"m",`)); !r.Done() {
		t.Error("the model is known")
	}
	r.Reset(WantModel | WantOutput)
	if r.Read([]byte(`{"model":"m",`)); r.Done() {
		t.Error("the bound may come")
	}
	if r.Read([]byte(`"max_tokens":5,`)); !r.Done() {
		t.Error("both are known")
	}
	r.Reset(WantModel)
	if r.Read([]byte(`not JSON`)); !r.Done() || r.Model() != nil {
		t.Error("no JSON says nothing")
	}
}

func TestUsageOfVendors(t *testing.T) {
	chunk := `data: {"id":"1","object":"chat.completion.chunk","choices":[{"delta":{"content":"say \"usage\": {\"prompt_tokens\":1}"}}],"usage":null}` + "\n\n"
	for name, tc := range map[string]struct {
		body   string
		events bool
		want   Count
	}{
		"chat completion":  {`{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":4}}}`, false, Count{15, 4, 10}},
		"response":         {`{"id":"resp","output":[],"usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":0},"output_tokens":87,"total_tokens":123}}`, false, Count{36, 0, 87}},
		"message":          {`{"type":"message","content":[{"type":"text","text":"x"}],"usage":{"input_tokens":5,"cache_creation_input_tokens":2,"cache_read_input_tokens":100,"output_tokens":6}}`, false, Count{7, 100, 6}},
		"chunks":           {chunk + chunk + `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}` + "\n\ndata: [DONE]\n\n", true, Count{3, 0, 4}},
		"chunks with CRLF": {strings.ReplaceAll(chunk+`data:{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}`+"\n\n", "\n", "\r\n"), true, Count{3, 0, 4}},
		"response events":  {"event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":1,\"output_tokens\":2}}}\n\n", true, Count{1, 0, 2}},
		"message events": {"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n" +
			": comment\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15}}\n\n", true, Count{25, 0, 15}},
		"a lie":                  {`{"usage":{"prompt_tokens":-5,"completion_tokens":99999999999999999999,"prompt_tokens_details":{"cached_tokens":10000001}}}`, false, Count{}},
		"more cached than input": {`{"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":50}}}`, false, Count{0, 5, 0}},
		"no usage":               {`{"usage":null}`, false, Count{}},
		"no JSON":                {`<html>`, false, Count{}},
		"no event stream":        {`{"usage":{"prompt_tokens":5}}`, true, Count{}},
		"usage elsewhere":        {`{"tools":{"usage":{"prompt_tokens":5}},"choices":[{"usage":{"prompt_tokens":5}}]}`, false, Count{}},
	} {
		for _, size := range []int{1, 3, 17, 1 << 20} {
			u := &Usage{}
			u.Reset(tc.events)
			for b := []byte(tc.body); len(b) > 0; {
				n := min(size, len(b))
				u.Read(b[:n])
				b = b[n:]
			}
			if got := u.Count(); got != tc.want {
				t.Errorf("%s by %d: %+v, want %+v", name, size, got, tc.want)
			}
		}
	}
}

func TestLooksDoNotAllocate(t *testing.T) {
	body := []byte(`{"messages":[{"role":"user","content":"hello"}],"model":"m","max_tokens":5}`)
	stream := []byte("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\n")
	r, u := &Request{}, &Usage{}
	if n := testing.AllocsPerRun(100, func() {
		r.Reset(WantModel | WantOutput)
		r.Read(body)
		u.Reset(true)
		u.Read(stream)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkUsage(b *testing.B) {
	event := []byte("data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"fake\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word word word\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n")
	u := &Usage{}
	u.Reset(true)
	b.SetBytes(int64(len(event)))
	for b.Loop() {
		u.Read(event)
	}
}

// FuzzRequest compares with encoding/json, for a body without equal members.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"model":"m","max_tokens":5,"stream":true}`), uint8(3))
	f.Fuzz(func(t *testing.T, body []byte, size uint8) {
		r := look(string(body), WantModel|WantOutput, int(size)+1)
		var all map[string]json.RawMessage
		if json.Unmarshal(body, &all) != nil || r.Model() == nil || strings.Count(string(body), "odel") > 1 || strings.Contains(string(body), `\`) {
			return
		}
		var model string
		if json.Unmarshal(all["model"], &model) != nil || model != strings.ToValidUTF8(string(r.Model()), "\ufffd") {
			t.Fatalf("%q, want %q", r.Model(), model)
		}
	})
}

// FuzzUsage reads arbitrary bodies: the numbers are in range and do not depend on the pieces.
func FuzzUsage(f *testing.F) {
	f.Add([]byte("data: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\r\n\r\n"), true, uint8(5))
	f.Add([]byte(`{"usage":{"input_tokens":3,"cache_read_input_tokens":4}}`), false, uint8(0))
	f.Fuzz(func(t *testing.T, body []byte, events bool, size uint8) {
		var one, many Usage
		one.Reset(events)
		one.Read(body)
		many.Reset(events)
		for rest := body; len(rest) > 0; {
			n := min(int(size)+1, len(rest))
			many.Read(rest[:n])
			rest = rest[n:]
		}
		c := one.Count()
		if c != many.Count() {
			t.Fatalf("%+v at once, %+v in pieces", c, many.Count())
		}
		for _, n := range []int64{c.Input, c.Cached, c.Output} {
			if n < 0 || n > 2*MaxCount {
				t.Fatalf("%+v", c)
			}
		}
	})
}

// Input that was read from a cache counts towards a limit where the vendor's input includes it, and not where
// it is stated apart.
func TestWhatCountsTowardsALimit(t *testing.T) {
	for usage, want := range map[string]Count{
		`{"usage":{"input_tokens":100,"cache_read_input_tokens":27000,"cache_creation_input_tokens":50,"output_tokens":7}}`: {Input: 150, Output: 7},
		`{"usage":{"inputTokens":100,"cacheReadInputTokens":27000,"cacheWriteInputTokens":50,"outputTokens":7}}`:            {Input: 150, Output: 7},
		`{"usage":{"prompt_tokens":1000,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":900}}}`:              {Input: 1000, Output: 7},
		`{"usageMetadata":{"promptTokenCount":1000,"candidatesTokenCount":7,"cachedContentTokenCount":900}}`:                {Input: 1000, Output: 7},
	} {
		var u Usage
		u.Reset(false)
		u.Read([]byte(usage))
		if got := u.Limited(); got != want {
			t.Errorf("%s: %+v, want %+v", usage, got, want)
		}
	}
}
