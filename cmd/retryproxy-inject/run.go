package main

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"github.com/retryproxy/retryproxy/internal/companion"
)

// outside is what the command uses of its environment, apart from files and sockets.
type outside struct {
	Version        string
	Args           []string // without the program's name
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// run executes the arguments and returns the exit code. When ctx ends, a webhook ends in order.
func run(ctx context.Context, o outside) int {
	return companion.ExitCode("retryproxy-inject", dispatch(ctx, &o), o.Stderr)
}

func dispatch(ctx context.Context, o *outside) error {
	switch name := append(o.Args, "")[0]; name {
	case "webhook":
		return runWebhook(ctx, o)
	case "version", "--version":
		_, err := fmt.Fprintf(o.Stdout, "retryproxy-inject %s (%s)\n", o.Version, runtime.Version())
		return err
	}
	return runInject(o)
}
