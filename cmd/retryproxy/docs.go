package main

import (
	"context"
	"fmt"

	"github.com/retryproxy/retryproxy/internal/docs"
)

var docsCommand = command{
	name:    "docs",
	args:    "[--check] [DIRECTORY]",
	summary: "write the generated parts of the documentation",
	details: `Writes docs/reference/settings.md, docs/reference/metrics.md, the table of docs/reference/retries.md and
the names of settings in the Helm chart's schema below DIRECTORY, by default the
present one. With --check it writes nothing and fails when they are not current.`,
	hidden: true,
	run:    runDocs,
}

func runDocs(_ context.Context, c *call) error {
	f := c.flags()
	check := f.Bool("check", false, "write nothing, fail if something is stale")
	rest, err := c.parse(f, 1)
	if err != nil {
		return err
	}
	root := "."
	if len(rest) == 1 {
		root = rest[0]
	}
	if !*check {
		return docs.Write(root)
	}
	stale, err := docs.Stale(root)
	if err != nil {
		return err
	}
	for _, path := range stale {
		fmt.Fprintln(c.stdout, path, "is stale; run make docs")
	}
	if len(stale) > 0 {
		return errReported
	}
	return nil
}
