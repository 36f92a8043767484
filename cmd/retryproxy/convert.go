package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/config/configfile"
	"github.com/retryproxy/retryproxy/internal/text"
)

var convertCommand = command{
	name:    "convert",
	args:    "-f FILE [--partial]",
	summary: "convert HTTPRoutes of the Kubernetes Gateway API to a configuration file",
	details: `Reads HTTPRoutes, retry budgets (XBackendTrafficPolicy) and Backends of Envoy Gateway,
and prints the settings that mean the same as a YAML configuration file. FILE is YAML
or JSON, with one object, several documents or a list; - is standard input:

  kubectl get httproute -o yaml | retryproxy convert -f - >retryproxy.yaml

What has no equivalent is an error and listed, each with its place. With --partial the
rest is printed: a match or a rule is left out, never approximated.

RETRYPROXY_HTTPROUTE_FILE lets retryproxy read such a file itself. docs/how-to/gateway-api.md
says what carries over.`,
	run: runConvert,
}

func runConvert(_ context.Context, c *call) error {
	f := c.flags()
	file := f.String("f", "", "`file` to read, - for standard input")
	partial := f.Bool("partial", false, "print what has an equivalent, and list the rest on standard error")
	if _, err := c.parse(f, 0); err != nil {
		return err
	}
	if *file == "" {
		return c.usage(f, errors.New("expected -f FILE"))
	}
	content, err := c.content(*file)
	if err != nil {
		return fmt.Errorf("%s: %w", *file, err)
	}
	made, problems := config.ConvertHTTPRoutes(content, *file)
	if err := problems.Err(); err != nil {
		return err
	}
	c.tellLost(made.Lost, *partial)
	if len(made.Lost) > 0 && !*partial {
		return fmt.Errorf("%w %w", errReported, config.ErrInvalid)
	}
	if made.NeedsUpstream {
		fmt.Fprintln(c.stderr, "retryproxy: no rule matches every request: set upstream for the others (Gateway API answers them with 404)")
	}
	_, err = c.stdout.Write(made.YAML)
	return err
}

// content returns the content of a file, or standard input.
func (c *call) content(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(io.LimitReader(c.stdin, configfile.MaxBytes))
	}
	return configfile.Text(file)
}

// tellLost lists the parts without an equivalent.
func (c *call) tellLost(lost []config.LostHTTPRoute, partial bool) {
	for _, l := range lost {
		leftOut := ""
		if partial {
			leftOut = "; " + l.LeftOut + " is left out"
		}
		fmt.Fprintf(c.stderr, "%v%s\n", l, leftOut)
	}
	if len(lost) > 0 && !partial {
		fmt.Fprintf(c.stderr, "retryproxy: nothing is printed: %s no equivalent; --partial prints the rest\n", have(len(lost)))
	}
}

func have(n int) string {
	if n == 1 {
		return "1 thing has"
	}
	return text.Plural(n, "thing") + " have"
}
