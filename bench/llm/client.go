package main

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
)

// answer is what a client saw of a job.
type answer struct {
	first time.Duration // until the first content; 0: there was none
	err   error
}

// vendor is a vendor's client. It is safe for concurrent use.
type vendor interface {
	ask(ctx context.Context, j job, calm bool) answer
}

// errNoContent is a response that was good and empty.
var errNoContent = errors.New("no content")

// vendors are the clients by name, and the wire that each speaks.
var vendors = []struct {
	name string
	wire wire
	make func(base string, transport http.RoundTripper, retries int) vendor
}{
	{"openai-go", openAIWire{}, newOpenAI},
	{"anthropic-sdk-go", anthropicWire{}, newAnthropic},
}

// stopwatch takes the time of the first content.
type stopwatch struct {
	start time.Time
	answer
}

func newStopwatch() *stopwatch { return &stopwatch{start: time.Now()} }

func (s *stopwatch) content(text string) {
	if text != "" && s.first == 0 {
		s.first = max(1, time.Since(s.start))
	}
}

func (s *stopwatch) end(err error) answer {
	if s.err = err; err == nil && s.first == 0 {
		s.err = errNoContent
	}
	return s.answer
}

type openAIClient struct{ openai.Client }

func newOpenAI(base string, transport http.RoundTripper, retries int) vendor {
	return openAIClient{openai.NewClient(openaioption.WithBaseURL(base+"/v1/"), openaioption.WithAPIKey("key"),
		openaioption.WithHTTPClient(&http.Client{Transport: transport}), openaioption.WithMaxRetries(retries))}
}

func (c openAIClient) ask(ctx context.Context, j job, calm bool) answer {
	params := openai.ChatCompletionNewParams{Model: "fake", MaxCompletionTokens: openai.Int(int64(j.tokens)),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Write.")}}
	options := []openaioption.RequestOption{openaioption.WithHeader(jobHeader, strconv.Itoa(j.number))}
	if calm {
		options = append(options, openaioption.WithHeader(calmHeader, "1"))
	}
	s := newStopwatch()
	if !j.stream {
		res, err := c.Chat.Completions.New(ctx, params, options...)
		if err == nil && len(res.Choices) > 0 {
			s.content(res.Choices[0].Message.Content)
		}
		return s.end(err)
	}
	stream := c.Chat.Completions.NewStreaming(ctx, params, options...)
	defer stream.Close()
	for stream.Next() {
		if choices := stream.Current().Choices; len(choices) > 0 {
			s.content(choices[0].Delta.Content)
		}
	}
	return s.end(stream.Err())
}

type anthropicClient struct{ anthropic.Client }

func newAnthropic(base string, transport http.RoundTripper, retries int) vendor {
	return anthropicClient{anthropic.NewClient(anthropicoption.WithBaseURL(base+"/"), anthropicoption.WithAPIKey("key"),
		anthropicoption.WithHTTPClient(&http.Client{Transport: transport}), anthropicoption.WithMaxRetries(retries))}
}

func (c anthropicClient) ask(ctx context.Context, j job, calm bool) answer {
	params := anthropic.MessageNewParams{Model: "fake", MaxTokens: int64(j.tokens),
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Write."))}}
	options := []anthropicoption.RequestOption{anthropicoption.WithHeader(jobHeader, strconv.Itoa(j.number))}
	if calm {
		options = append(options, anthropicoption.WithHeader(calmHeader, "1"))
	}
	s := newStopwatch()
	if !j.stream {
		res, err := c.Messages.New(ctx, params, options...)
		if err == nil && len(res.Content) > 0 {
			s.content(res.Content[0].Text)
		}
		return s.end(err)
	}
	stream := c.Messages.NewStreaming(ctx, params, options...)
	defer stream.Close()
	for stream.Next() {
		s.content(stream.Current().Delta.Text)
	}
	return s.end(stream.Err())
}
