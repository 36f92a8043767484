package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/retryproxy/retryproxy/internal/serve"
	"github.com/retryproxy/retryproxy/internal/text"
)

var versionCommand = command{
	name:    "version",
	args:    "[--json]",
	summary: "print the version",
	details: "Prints the version, the commit it was built from, and the Go version.",
	run:     runVersion,
}

// version is set by the release build: -ldflags "-X main.version=1.2.3".
var version = "dev"

// revision is set in the same way by builds without a repository, such as the image's; otherwise
// the Go tool sets it.
var revision string

// buildView describes the binary.
type buildView struct {
	Version  string `json:"version"`
	Revision string `json:"revision"` // "unknown" for a build outside a repository; ends in "+" if files were changed
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func build() buildView {
	v := buildView{Version: version, Revision: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if revision != "" {
		v.Revision = revision
		return v
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		v.add(info)
	}
	return v
}

// add adds what the Go tool says. The module has a checksum if it was downloaded, as by go install
// .../cmd/retryproxy@latest, and then its version is that of the program.
func (v *buildView) add(info *debug.BuildInfo) {
	if info.Main.Sum != "" {
		v.Version = info.Main.Version
	}
	changed := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			v.Revision = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+"
		}
	}
	v.Revision += changed
}

func (v buildView) forServe() serve.Build {
	return serve.Build{Version: v.Version, Revision: v.Revision}
}

func runVersion(_ context.Context, c *call) error {
	f := c.flags()
	asJSON := f.Bool("json", false, "print JSON")
	if _, err := c.parse(f, 0); err != nil {
		return err
	}
	v := build()
	if *asJSON {
		return text.JSON(c.stdout, v)
	}
	_, err := fmt.Fprintf(c.stdout, "retryproxy %s (%s, %s, %s)\n", v.Version, v.Revision, v.Go, v.Platform)
	return err
}
