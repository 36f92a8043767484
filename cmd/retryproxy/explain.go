package main

import (
	"context"
	"errors"
	"strings"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/explain"
	"github.com/retryproxy/retryproxy/internal/text"
)

var explainCommand = command{
	name:    "explain",
	args:    "METHOD URL [-H 'Name: value']... [--model NAME] [--proxied] [--json]",
	summary: "show which route a request takes, and whether and why it would be retried",
	details: `Takes a request as a client would send it, reads the settings like a start would,
and opens nothing. URL may be a path such as /search/x; the Host is then localhost,
unless -H 'Host: ...' names another. --model NAME stands for a JSON body that names that
model, for routes with RETRYPROXY_ROUTE_<NAME>_MODEL.

Prints the route. For every kind of failure, prints whether the request would be
retried and why, provided that there is time, retry budget and memory.`,
	run: runExplain,
}

func runExplain(_ context.Context, c *call) error {
	f := c.flags()
	var header []string
	f.Func("H", "a header of the request, as in curl; may be repeated (`'Name: value'`)", func(s string) error {
		if name, _, found := strings.Cut(s, ":"); !found || name == "" {
			return errors.New(`expected "Name: value"`)
		}
		header = append(header, s)
		return nil
	})
	model := f.String("model", "", "the `name` of the model in the request's JSON body; default none")
	proxied := f.Bool("proxied", false, "send the URL as a client with http_proxy does")
	asJSON := f.Bool("json", false, "print JSON")
	listener := f.String("listen", "", "the `address` of the listener that gets the request; default the main one")
	rest, err := c.parse(f, 2)
	if err != nil {
		return err
	}
	if len(rest) != 2 {
		return c.usage(f, errors.New("expected METHOD and URL"))
	}
	head, err := explain.RequestHead(rest[0], rest[1], header, *proxied)
	if err != nil {
		return c.usage(f, err)
	}
	s, err := c.settings()
	if err != nil {
		return err
	}
	v, err := explain.Explain(s, head, *listener, *model)
	if err != nil {
		return err
	}
	if *asJSON {
		return text.JSON(c.stdout, v)
	}
	v.Text(c.stdout, text.PaintFor(c.stdout, config.Getenv(c.env)))
	return nil
}
