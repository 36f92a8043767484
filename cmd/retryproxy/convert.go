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
