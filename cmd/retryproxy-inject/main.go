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
	"os"
	"os/signal"
	"syscall"
)

// version is set by the release build: -ldflags "-X main.version=1.2.3".
var version = "dev"

// main connects run with the process.
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := run(ctx, outside{
		Version: version, Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	})
	stop()
	os.Exit(code)
}
