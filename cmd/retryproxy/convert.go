package main

import (
	"context"

	"github.com/retryproxy/retryproxy/internal/config"
)

var convertCommand = command{
	name:    "convert",
	summary: "print settings as a YAML configuration file",
	details: `Prints the settings of the environment, and of the file that RETRYPROXY_CONFIG_FILE names,
as a YAML configuration file. 'retryproxy check' checks the values.`,
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
	if _, err := c.parse(c.flags(), 0); err != nil {
		return err
	}
	content, problems := config.YAML(c.env)
	if err := problems.Err(); err != nil {
		return err
	}
	_, err := c.stdout.Write(content)
	return err
}
