// Command retryproxyctl has what a person runs at a desk or in a cluster, and what every sidecar would
// only carry: it plans and simulates retries and draws them, advises on the settings of a running
// retryproxy, and puts retryproxy into Kubernetes Pods. `retryproxyctl help` shows its usage.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// main connects run with the process.
func main() {
	os.Exit(run(context.Background(), &outside{
		args: os.Args[1:], env: os.Environ(), stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		ignorePipe: func() { signal.Ignore(syscall.SIGPIPE) },
	}))
}

// outside is what a command may use of its environment, apart from files and sockets.
type outside struct {
	args           []string // without the program's name
	env            []string // as os.Environ
	stdin          io.Reader
	stdout, stderr io.Writer
	// ignorePipe keeps a write to a pipe without a reader from ending the process. It is nil in tests.
	ignorePipe func()
}

// untilSignal returns a context that ends at SIGTERM or SIGINT.
func untilSignal(ctx context.Context) (context.Context, func()) {
	return signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
}
