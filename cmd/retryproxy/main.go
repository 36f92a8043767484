// Command retryproxy forwards HTTP requests to an upstream and retries what is safe and worth
// retrying. `retryproxy help` shows its usage.
package main

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/retryproxy/retryproxy/internal/config"
)

// main connects run with the process.
func main() {
	environ := os.Environ()
	forgetOurs(environ)
	os.Exit(run(context.Background(), &outside{
		args:       os.Args[1:],
		env:        environ,
		stdout:     os.Stdout,
		stderr:     os.Stderr,
		signals:    listen,
		become:     syscall.Exec,
		ignorePipe: func() { signal.Ignore(syscall.SIGPIPE) },
	}))
}

// forgetOurs removes our variables from the process's environment. run has its own copy. The
// library that parses them copies the environment once per route: with 1000 routes in it, a start
// would take 2.3 s instead of 0.2 s.
func forgetOurs(environ []string) {
	for _, entry := range environ {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, config.Prefix) {
			_ = os.Unsetenv(name) // fails only for names that an environment cannot contain
		}
	}
}

// listen receives SIGTERM, SIGINT and SIGHUP until stop is called.
func listen() (signals <-chan os.Signal, stop func()) {
	ch := make(chan os.Signal, 4) // enough for an impatient user; the kernel merges the rest
	signal.Notify(ch, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	return ch, func() { signal.Stop(ch) }
}
