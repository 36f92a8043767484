package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"

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

func runInject(ctx context.Context, c *call) error { return c.beside(ctx, c.args) }

func runWebhook(ctx context.Context, c *call) error {
	return c.beside(ctx, append([]string{"webhook"}, c.args...))
}

// besideEnd is how long the other program may take to end after SIGTERM. Its own drain takes less.
const besideEnd = time.Minute

// beside runs the other program in place of this one, with the same streams, signals and exit
// code. If the other program is missing, this one can still print the command's help.
func (c *call) beside(ctx context.Context, args []string) error {
	path, err := companion.Find(injectProgram)
	if err != nil {
		if len(c.args) == 1 && isHelp(c.args[0]) {
			return c.usage(c.flags(), errHelp)
		}
		return fmt.Errorf("%s was not found beside this command or in PATH; it is in the same release, or\n  go install github.com/retryproxy/retryproxy/cmd/%s@latest", injectProgram, injectProgram)
	}
	program := exec.CommandContext(ctx, path, args...)
	program.Env, program.Stdin, program.Stdout, program.Stderr = c.env, c.stdin, c.stdout, c.stderr
	program.Cancel = func() error { return program.Process.Signal(syscall.SIGTERM) }
	program.WaitDelay = besideEnd
	if err := program.Start(); err != nil {
		return err
	}
	defer c.forward(program)()
	err = program.Wait()
	var ended *exec.ExitError
	switch {
	case !errors.As(err, &ended):
		return err
	case ended.ExitCode() == exitUsage:
		return errUsage
	}
	return errReported
}

// forward forwards signals to the program until stop is called.
func (c *call) forward(program *exec.Cmd) (stop func()) {
	if c.signals == nil {
		return func() {}
	}
	signals, deaf := c.signals()
	done := make(chan struct{})
	var passing sync.WaitGroup
	passing.Go(func() {
		for {
			select {
			case s := <-signals:
				_ = program.Process.Signal(s) // the program may have ended already
			case <-done:
				return
			}
		}
	})
	return func() {
		deaf()
		close(done)
		passing.Wait()
	}
}
