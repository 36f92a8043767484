// Command retryproxy-inject puts a retryproxy beside the containers of
// Kubernetes Pods and leads traffic through it: in files, and as an admission
// webhook.
//
//	retryproxy-inject -f deployment.yaml | kubectl apply -f -
//	retryproxy-inject webhook --cert tls.crt
//
// It is a command of its own so that the sidecar does not carry what reads and
// writes YAML. `retryproxy inject` and `retryproxy webhook` run it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the release build: -ldflags "-X main.version=1.2.3".
var version = "dev"

// main binds the outside world to run and does nothing else.
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := run(ctx, outside{
		Version: version, Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	})
	stop()
	os.Exit(code)
}
