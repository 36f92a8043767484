// Command retryproxy-inject adds a retryproxy to Kubernetes Pods and routes their traffic through
// it: in manifest files, and as an admission webhook.
//
//	retryproxy-inject -f deployment.yaml | kubectl apply -f -
//	retryproxy-inject webhook --cert tls.crt
//
// It is a separate command so that the sidecar does not contain the code for YAML. `retryproxy
// inject` and `retryproxy webhook` run it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/retryproxy/retryproxy/internal/companion"
)

// version is set by the release build: -ldflags "-X main.version=1.2.3".
var version = "dev"

// main connects run with the process.
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := run(ctx, outside{
		Version: version, Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		IgnorePipe: func() { signal.Ignore(syscall.SIGPIPE) },
	})
	stop()
	os.Exit(code)
}

// outside is what the command uses of its environment, apart from files and sockets.
type outside struct {
	Version        string
	Args           []string // without the program's name
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// IgnorePipe keeps a write to a pipe without a reader from ending the process. It is nil in tests.
	IgnorePipe func()
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
