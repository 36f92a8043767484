package main

import (
	"context"
	"errors"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/config/configfile"
	"github.com/retryproxy/retryproxy/internal/docs"
)

var configCommand = command{
	name:    "config",
	args:    "convert [FILE] | schema",
	summary: "convert settings between the environment and YAML; print the YAML's schema",
	details: `convert prints the settings of the environment, and of the file that
RETRYPROXY_CONFIG_FILE names, as a YAML configuration file. With a FILE that ends in
.yaml or .yml it prints that as lines NAME=VALUE, with any other FILE as YAML.

schema prints the JSON Schema of the YAML form, with which an editor completes names
and marks mistakes:

  retryproxy config convert >retryproxy.yaml
  retryproxy config schema >retryproxy.schema.json
  # the first line of retryproxy.yaml:
  # yaml-language-server: $schema=retryproxy.schema.json

'retryproxy check' checks the values.`,
	run: runConfig,
}

func runConfig(_ context.Context, c *call) error {
	f := c.flags()
	rest, err := c.parse(f, 2)
	switch {
	case err != nil:
		return err
	case len(rest) == 1 && rest[0] == "schema":
		_, err := c.stdout.Write(docs.Schema())
		return err
	case len(rest) == 1 && rest[0] == "convert":
		return printYAML(c, c.env)
	case len(rest) == 2 && rest[0] == "convert" && configfile.IsYAML(rest[1]):
		return printLines(c, rest[1])
	case len(rest) == 2 && rest[0] == "convert":
		return printYAML(c, []string{config.Prefix + "CONFIG_FILE=" + rest[1]})
	}
	return c.usage(f, errors.New("expected convert, convert FILE or schema"))
}

func printYAML(c *call, environ []string) error {
	content, problems := config.YAML(environ)
	if err := problems.Err(); err != nil {
		return err
	}
	_, err := c.stdout.Write(content)
	return err
}

func printLines(c *call, path string) error {
	pairs, err := configfile.Read(path)
	if problems := config.FileProblems(path, err); problems != nil {
		return problems.Err()
	}
	var lines []byte
	for _, p := range pairs {
		if p.Value != "" { // empty means not set
			lines = configfile.AppendLine(lines, p)
		}
	}
	_, err = c.stdout.Write(lines)
	return err
}
