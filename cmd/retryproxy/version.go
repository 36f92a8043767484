package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/retryproxy/retryproxy/internal/serve"
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

// build describes the binary. The revision is "unknown" for a build outside a repository, and ends in
// "+" if files were changed.
func build() serve.Build {
	b := serve.Build{Version: version, Revision: "unknown"}
	if revision != "" {
		b.Revision = revision
	} else if info, ok := debug.ReadBuildInfo(); ok {
		addBuildInfo(&b, info)
	}
	return b
}

// addBuildInfo adds what the Go tool says. The module has a checksum if it was downloaded, as by go
// install .../cmd/retryproxy@latest, and then its version is that of the program.
func addBuildInfo(b *serve.Build, info *debug.BuildInfo) {
	if info.Main.Sum != "" {
		b.Version = info.Main.Version
	}
	changed := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.Revision = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+"
		}
	}
	b.Revision += changed
}

func runVersion(_ context.Context, c *call) error {
	if _, err := c.parse(c.flags(), 0); err != nil {
		return err
	}
	b := build()
	_, err := fmt.Fprintf(c.stdout, "retryproxy %s (%s, %s, %s/%s)\n", b.Version, b.Revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
