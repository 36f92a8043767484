package main

import (
	"context"
	"errors"
	"strings"

	"github.com/retryproxy/retryproxy/internal/config"
)

var configCommand = command{
	name:    "config",
	args:    "convert | schema",
	summary: "convert settings to YAML; print the YAML's schema",
	details: `convert prints the settings of the environment, and of the file that
RETRYPROXY_CONFIG_FILE names, as a YAML configuration file.

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
	rest, err := c.parse(f, 1)
	if err != nil {
		return err
	}
	var content []byte
	switch strings.Join(rest, "") {
	case "convert":
		var problems config.Problems
		if content, problems = config.YAML(c.env); problems.Err() != nil {
			return problems.Err()
		}
	case "schema":
		content = config.Schema()
	default:
		return c.usage(f, errors.New("expected convert or schema"))
	}
	_, err = c.stdout.Write(content)
	return err
}
