package main

import (
	"context"
	"fmt"

	"github.com/retryproxy/retryproxy/internal/companion"
)

// injectProgram is a separate program, because the code for YAML would make every sidecar larger;
// see docs/decisions/0015-inject.md.
const injectProgram = "retryproxy-inject"

var injectCommand = command{
	name:    "inject",
	args:    "[-f FILE] [flags]",
	summary: "add the sidecar to Kubernetes manifests",
	details: `Reads manifests from FILE or standard input and prints them with a sidecar in every
Pod template, through which the traffic goes. It runs retryproxy-inject, which must be
in the same directory or in PATH; then this help lists its flags.`,
	run: runInject,
}

var webhookCommand = command{
	name:    "webhook",
	args:    "--cert FILE [flags]",
	summary: "inject the sidecar into Pods when Kubernetes admits them",
	details: `Serves a mutating admission webhook that injects the sidecar into Pods with the
annotation retryproxy.io/inject: "true". It runs retryproxy-inject webhook; if that
is in the same directory or in PATH, this help lists its flags.`,
	run: runWebhook,
}

func runInject(_ context.Context, c *call) error { return c.becomeInject(c.args) }

func runWebhook(_ context.Context, c *call) error {
	return c.becomeInject(append([]string{"webhook"}, c.args...))
}

// becomeInject replaces this process with injectProgram. If that is missing, this process can still
// print the command's help.
func (c *call) becomeInject(args []string) error {
	path, err := companion.Find(injectProgram)
	switch {
	case err == nil && c.become != nil:
		return c.become(path, append([]string{path}, args...), c.env)
	case len(c.args) == 1 && isHelp(c.args[0]):
		return c.usage(c.flags(), errHelp)
	}
	return fmt.Errorf("%s was not found beside this command or in PATH; it is in the same release, or\n  go install github.com/retryproxy/retryproxy/cmd/%s@latest", injectProgram, injectProgram)
}
