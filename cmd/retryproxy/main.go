// Command retryproxy forwards HTTP requests to an upstream and retries what is
// safe and worth retrying. `retryproxy help` says how to use it.
package main

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/retryproxy/retryproxy/internal/config"
)

// main binds the outside world to run and does nothing else.
func main() {
	environ := os.Environ()
	forgetOurs(environ)
	os.Exit(run(context.Background(), &outside{
		args:    os.Args[1:],
		env:     environ,
		stdin:   os.Stdin,
		stdout:  os.Stdout,
		stderr:  os.Stderr,
		signals: listen,
		become:  syscall.Exec,
	}))
}

// forgetOurs takes our variables out of the process's environment: run has its
// own copy, and the library that parses them copies the environment once per
// route that it parses, which 10 000 routes would feel.
func forgetOurs(environ []string) {
	for _, entry := range environ {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, config.Prefix) {
			_ = os.Unsetenv(name) // fails only for names that cannot be in an environment
		}
	}
}

// listen asks for the signals that mean something to us until stop is called.
func listen() (signals <-chan os.Signal, stop func()) {
	ch := make(chan os.Signal, 4) // a person's haste fits; the kernel merges the rest anyway
	signal.Notify(ch, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	return ch, func() { signal.Stop(ch) }
}
