package engine

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"
)

// reserve is how long before the end of `go test -timeout` the engine is
// tidied up: that end itself leaves no time for anything.
const reserve = time.Minute

// Cleanup lets tidy run once: when the test has ended, or before, when the
// process is told to end or has no more time. What runs on the engine does not
// end with the process, so t.Cleanup alone would leave it there. Tidying is done
// in the opposite order.
func Cleanup(t *testing.T, tidy func()) {
	t.Helper()
	tidyOnce := sync.OnceFunc(tidy)
	watch()
	hurried.Lock()
	hurried.all = append(hurried.all, tidyOnce)
	hurried.Unlock()
	if end, ok := t.Deadline(); ok {
		timer := time.AfterFunc(time.Until(end)-reserve, func() { tidyAll("no time is left") })
		t.Cleanup(func() { timer.Stop() })
	}
	t.Cleanup(tidyOnce)
}

// hurried is what a process that ends early has to do; doing it again after the
// test has ended does nothing.
var hurried struct {
	sync.Mutex
	all []func()
}

var watch = sync.OnceFunc(func() {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGINT, syscall.SIGTERM)
	go func() { tidyAll((<-told).String()) }() // ends with the process
})

// Last lets tidy run at the end of the process, after all that Cleanup was given.
// TestMain has to call AtEnd.
func Last(tidy func()) {
	watch()
	hurried.Lock()
	defer hurried.Unlock()
	last = append(last, sync.OnceFunc(tidy))
}

var last []func() // guarded by hurried

// AtEnd runs what Last was given, in the opposite order.
func AtEnd() {
	hurried.Lock()
	defer hurried.Unlock()
	for i := len(last) - 1; i >= 0; i-- {
		last[i]()
	}
}

// tidyAll ends the process.
func tidyAll(why string) {
	hurried.Lock()
	defer hurried.Unlock()
	fmt.Fprintln(os.Stderr, "tidying up the engine:", why)
	for i := len(hurried.all) - 1; i >= 0; i-- {
		hurried.all[i]()
	}
	for i := len(last) - 1; i >= 0; i-- {
		last[i]()
	}
	os.Exit(1)
}
