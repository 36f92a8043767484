package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
)

// outside is what the command uses of its environment, apart from files and sockets.
type outside struct {
	Version        string
	Args           []string // without the program's name
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// The exit codes, as those of retryproxy.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// errUsage matches errors of the arguments.
var errUsage = errors.New("wrong arguments")

// run executes the arguments and returns the exit code. When ctx ends, a webhook ends in order.
func run(ctx context.Context, o outside) int {
	err := dispatch(ctx, &o)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.Is(err, errUsage):
		fmt.Fprintf(o.Stderr, "retryproxy-inject: %v; see retryproxy-inject --help\n", err)
		return exitUsage
	}
	fmt.Fprintln(o.Stderr, "retryproxy-inject:", err)
	return exitFailed
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

// parse parses flags; any further argument is an error.
func parse(f *flag.FlagSet, usage string, args []string, stdout io.Writer) error {
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		f.SetOutput(stdout)
		f.PrintDefaults()
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", errUsage, err)
	case f.NArg() > 0:
		return fmt.Errorf("%w: unexpected argument %q", errUsage, f.Arg(0))
	}
	return nil
}
