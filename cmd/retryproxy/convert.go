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
	args:    "[-f FILE [--partial]]",
	summary: "print settings, or HTTPRoutes of the Kubernetes Gateway API, as a YAML configuration file",
	details: `Prints the settings of the environment, and of the files that RETRYPROXY_CONFIG_FILE and
RETRYPROXY_HTTPROUTE_FILE name, as a YAML configuration file. 'retryproxy check' checks
the values.

With -f, reads HTTPRoutes, retry budgets (XBackendTrafficPolicy) and Backends of Envoy
Gateway instead, and prints the settings that mean the same. FILE is YAML or JSON, with
one object, several documents or a list; - is standard input:

  kubectl get httproute -o yaml | retryproxy convert -f - >retryproxy.yaml

What has no equivalent is an error and listed, each with its place. With --partial the
rest is printed: a match or a rule is left out, never approximated.
docs/how-to/gateway-api.md says what carries over.`,
	run: runConvert,
}

var schemaCommand = command{
	name:    "schema",
	summary: "print the JSON Schema of the YAML configuration file",
	details: `An editor completes names and marks mistakes with it:

  retryproxy schema >retryproxy.schema.json
  # the first line of retryproxy.yaml:
  # yaml-language-server: $schema=retryproxy.schema.json`,
	run: runSchema,
}

func runSchema(_ context.Context, c *call) error {
	if _, err := c.parse(c.flags(), 0); err != nil {
		return err
	}
	_, err := c.stdout.Write(config.Schema())
	return err
}

func runConvert(_ context.Context, c *call) error {
	f := c.flags()
	file := f.String("f", "", "`file` of HTTPRoutes to read, - for standard input")
	partial := f.Bool("partial", false, "print what has an equivalent, and list the rest on standard error")
	if _, err := c.parse(f, 0); err != nil {
		return err
	}
	if *file != "" {
		return c.convertHTTPRoutes(*file, *partial)
	}
	if *partial {
		return c.usage(f, errors.New("--partial needs -f"))
	}
	content, problems := config.YAML(c.env)
	if err := problems.Err(); err != nil {
		return err
	}
	_, err := c.stdout.Write(content)
	return err
}

func (c *call) convertHTTPRoutes(file string, partial bool) error {
	content, err := c.content(file)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	made, problems := config.ConvertHTTPRoutes(content, file)
	if err := problems.Err(); err != nil {
		return err
	}
	c.tellLost(made.Lost, partial)
	if len(made.Lost) > 0 && !partial {
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
