package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
)

// vendor is a vendor's client. It is safe for concurrent use. Both methods pass on content as it comes.
type vendor interface {
	whole(ctx context.Context, tokens int64, content func(string)) error
	stream(ctx context.Context, tokens int64, content func(string)) error
}

// vendors are the clients with the wires that they speak. The transport knows the address.
var vendors = []struct {
	name string
	wire wire
	make func(transport http.RoundTripper, retries int) vendor
}{
	{"openai-go", openAIWire{}, newOpenAI},
	{"anthropic-sdk-go", anthropicWire{}, newAnthropic},
}

// errNoContent is the error of a good response without content.
var errNoContent = errors.New("no content")

// response is what a client saw of a job.
type response struct {
	first time.Duration // until the first content; 0: there was none
	err   error
}

// do does a job with a vendor's client.
func do(ctx context.Context, v vendor, j job, calm bool) (r response) {
	start := time.Now()
	how := v.whole
	if j.stream {
		how = v.stream
	}
	r.err = how(asks(ctx, j, calm), int64(j.tokens), func(text string) {
		if text != "" && r.first == 0 {
			r.first = max(1, time.Since(start))
		}
	})
	if r.err == nil && r.first == 0 {
		r.err = errNoContent
	}
	return r
}

type openAIClient struct{ openai.Client }

func newOpenAI(transport http.RoundTripper, retries int) vendor {
	return openAIClient{openai.NewClient(openaioption.WithBaseURL("http://llm.test/v1/"), openaioption.WithAPIKey("key"),
		openaioption.WithHTTPClient(&http.Client{Transport: transport}), openaioption.WithMaxRetries(retries))}
}

func openAIParams(tokens int64) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: "fake", MaxCompletionTokens: openai.Int(tokens),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Write.")}}
}

func (c openAIClient) whole(ctx context.Context, tokens int64, content func(string)) error {
	res, err := c.Chat.Completions.New(ctx, openAIParams(tokens))
	if err == nil && len(res.Choices) > 0 {
		content(res.Choices[0].Message.Content)
	}
	return err
}

func (c openAIClient) stream(ctx context.Context, tokens int64, content func(string)) error {
	stream := c.Chat.Completions.NewStreaming(ctx, openAIParams(tokens))
	defer stream.Close()
	for stream.Next() {
		if choices := stream.Current().Choices; len(choices) > 0 {
			content(choices[0].Delta.Content)
		}
	}
	return stream.Err()
}

type anthropicClient struct{ anthropic.Client }

func newAnthropic(transport http.RoundTripper, retries int) vendor {
	return anthropicClient{anthropic.NewClient(anthropicoption.WithBaseURL("http://llm.test/"), anthropicoption.WithAPIKey("key"),
		anthropicoption.WithHTTPClient(&http.Client{Transport: transport}), anthropicoption.WithMaxRetries(retries))}
}

func anthropicParams(tokens int64) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{Model: "fake", MaxTokens: tokens,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Write."))}}
}

func (c anthropicClient) whole(ctx context.Context, tokens int64, content func(string)) error {
	res, err := c.Messages.New(ctx, anthropicParams(tokens))
	if err == nil && len(res.Content) > 0 {
		content(res.Content[0].Text)
	}
	return err
}

func (c anthropicClient) stream(ctx context.Context, tokens int64, content func(string)) error {
	stream := c.Messages.NewStreaming(ctx, anthropicParams(tokens))
	defer stream.Close()
	for stream.Next() {
		content(stream.Current().Delta.Text)
	}
	return stream.Err()
}

// asking is the context key of an ask.
type asking struct{}

// ask is what a request's headers tell the provider.
type ask struct {
	job  int
	calm bool
}

// asks returns a context whose requests are those of a job.
func asks(ctx context.Context, j job, calm bool) context.Context {
	return context.WithValue(ctx, asking{}, ask{j.number, calm})
}

// tee is an http.RoundTripper that records each body before the vendor's client reads it. It is safe for
// concurrent use.
type tee struct {
	under http.RoundTripper
	addrs []string // each request goes to one of them

	mu  sync.Mutex // guards got
	got map[string]body
}

func newTee(addrs ...string) *tee {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableCompression = true // it would change the bodies
	t.Proxy = nil
	t.MaxIdleConnsPerHost = 100
	return &tee{under: t, addrs: addrs, got: map[string]body{}}
}

// RoundTrip reads the bodies of errors at once, because the vendors' clients do not read them before a retry.
func (t *tee) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = t.addrs[rand.IntN(len(t.addrs))]
	a := r.Context().Value(asking{}).(ask)
	r.Header.Set(jobHeader, strconv.Itoa(a.job))
	if a.calm {
		r.Header.Set(calmHeader, "1")
	}
	res, err := t.under.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	id := res.Header.Get(responseHeader)
	if id == "" { // a proxy's own, or a calm one
		return res, nil
	}
	b := &teeBody{in: res.Body, keep: func(b body) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.got[id] = b
	}}
	res.Body = b
	if res.StatusCode >= 400 {
		text, err := io.ReadAll(b)
		_ = b.Close()
		if err != nil {
			return nil, err
		}
		res.Body = io.NopCloser(bytes.NewReader(text))
	}
	return res, nil
}

// teeBody records what is read from it. It is not safe for concurrent use.
type teeBody struct {
	in   io.ReadCloser
	text []byte
	err  error
	keep func(body) // nil: it is closed
}

func (b *teeBody) Read(p []byte) (n int, err error) {
	if b.err == nil {
		n, b.err = b.in.Read(p)
		b.text = append(b.text, p[:n]...)
	}
	return n, b.err
}

// Close reads the rest first: clients stop at the last event, which may not be the last byte.
func (b *teeBody) Close() error {
	if b.keep == nil {
		return nil
	}
	_, _ = io.Copy(io.Discard, b) // its error is kept
	b.keep(body{b.text, b.err == io.EOF})
	b.keep = nil
	return b.in.Close()
}
