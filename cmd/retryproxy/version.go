package main

import (
	"context"
	"fmt"

	"github.com/retryproxy/retryproxy/internal/buildinfo"
)

var versionCommand = command{
	name:    "version",
	summary: "print the version",
	details: "Prints the version, the commit it was built from, and the Go version.",
	run:     runVersion,
}

// version is set by the release build: -ldflags "-X main.version=1.2.3".
var version = "dev"

// revision is set in the same way by builds without a repository, such as the image's; otherwise
// the Go tool sets it.
var revision string

func build() buildinfo.Build { return buildinfo.Of(version, revision) }

func runVersion(_ context.Context, c *call) error {
	if _, err := c.parse(c.flags(), 0); err != nil {
		return err
	}
	_, err := fmt.Fprintln(c.stdout, build().Line("retryproxy"))
	return err
}
