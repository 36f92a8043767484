//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// CLOCK_REALTIME is one for the whole machine: time namespaces have only the
// monotonic clocks, and libfaketime does not reach a static Go program. So the
// program is built once more, with an overlay of package time whose Now adds
// seconds that come by a named pipe. What is monotonic in a time stays as it is,
// as when the machine's clock is stepped.
const (
	program = "github.com/retryproxy/retryproxy/cmd/retryproxy"

	// pipeVariable names the pipe for the program that was built so.
	pipeVariable = "FAULTS_CLOCK"

	nowAsIs    = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	nowStepped = nowAsIs + "\tsec += stepped.Load()\n"

	addedToTime = `package time

import "sync/atomic"

var stepped atomic.Int64

func StepWall(seconds int64) { stepped.Store(seconds) }
`
	addedToProgram = `package main

import (
	"fmt"
	"os"
	"time"
)

func init() {
	pipe, err := os.OpenFile(os.Getenv("` + pipeVariable + `"), os.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	go func() {
		for seconds := int64(0); ; time.StepWall(seconds) {
			if _, err := fmt.Fscanln(pipe, &seconds); err != nil {
				panic(err)
			}
		}
	}()
}
`
)

// stepping gives the source of package time with a wall clock that can be stepped.
func stepping(source []byte) ([]byte, error) {
	if n := bytes.Count(source, []byte(nowAsIs)); n != 1 {
		return nil, fmt.Errorf("this Go's package time has %d times what is changed in it, instead of once:\n%s", n, nowAsIs)
	}
	return bytes.Replace(source, []byte(nowAsIs), []byte(nowStepped), 1), nil
}

// overlay writes files into dir that replace or are added to others, and names the list of them.
func overlay(dir string, files map[string][]byte) (list string, err error) {
	replace := map[string]string{}
	for path, content := range files {
		replace[path] = filepath.Join(dir, fmt.Sprintf("overlaid%d.go", len(replace)))
		if err := os.WriteFile(replace[path], content, 0o600); err != nil {
			return "", err
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list = filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, b, 0o600)
}

// buildStepping builds the program so that its wall clock can be stepped. The
// first time it compiles the standard library, too, which takes a minute or two;
// then Go's build cache has it.
func buildStepping(ctx context.Context, dir string) (path string, err error) {
	found, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "time", program).Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	std, own, two := strings.Cut(strings.TrimSpace(string(found)), "\n")
	if !two {
		return "", fmt.Errorf("go list said %q instead of two folders", found)
	}
	source, err := os.ReadFile(filepath.Join(std, "time.go"))
	if err != nil {
		return "", err
	}
	if source, err = stepping(source); err != nil {
		return "", err
	}
	list, err := overlay(dir, map[string][]byte{
		filepath.Join(std, "time.go"):     source,
		filepath.Join(std, "stepped.go"):  []byte(addedToTime),
		filepath.Join(own, "stepping.go"): []byte(addedToProgram),
	})
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "retryproxy")
	build := exec.CommandContext(ctx, "nice", "-n", "19", "go", "build", "-trimpath", "-buildvcs=false", "-overlay", list, "-o", path, program)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, said)
	}
	return path, nil
}

// wallClock is that of the proxy.
type wallClock struct {
	pipe  *os.File
	began time.Time
	seen  atomic.Int64       // steps that the Date of a response has shown
	leave context.CancelFunc // the steps
	left  chan struct{}      // closed when there are no more
}

// step is how far the wall clock is off, one way or the other.
const step = time.Hour

func (c *wallClock) prepare(st *stage) (err error) {
	path := filepath.Join(st.dir, "clock")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		return err
	}
	if c.pipe, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		return err
	}
	st.later(func() { _ = c.pipe.Close() })
	st.settings = []string{pipeVariable + "=" + path}
	fmt.Fprintf(os.Stderr, "faults: %s: building the program with such a clock; the first time this takes a minute or two\n", st.f.name)
	st.program, err = buildStepping(st.ctx, st.dir)
	return err
}

func (c *wallClock) set(off time.Duration) error {
	_, err := fmt.Fprintln(c.pipe, int64(off/time.Second))
	return err
}

// begin steps the clock to an hour ahead, to an hour behind, and so on, twice while the fault lasts.
func (c *wallClock) begin(st *stage) error {
	var ctx context.Context
	ctx, c.leave = context.WithCancel(st.ctx)
	c.left = make(chan struct{})
	c.began = time.Now()
	c.seen.Store(0)
	if err := c.set(step); err != nil {
		return err
	}
	go func() {
		defer close(c.left)
		for off := step; c.shows(ctx, st.proxy, off); off = -off {
			c.seen.Add(1)
			select {
			case <-time.After(st.o.lasts / 2):
			case <-ctx.Done():
				return
			}
			if c.set(-off) != nil {
				return
			}
		}
	}()
	return nil
}

// shows waits until the Date of the proxy's own responses is off so far; a proxy that has ended has none.
func (c *wallClock) shows(ctx context.Context, p *proxy, off time.Duration) bool {
	for ctx.Err() == nil {
		if r, err := p.admins.Get("http://admin/healthz"); err == nil {
			_ = r.Body.Close()
			date, err := http.ParseTime(r.Header.Get("Date"))
			if err == nil && (time.Until(date)-off).Abs() < step/10 {
				return true
			}
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return false
}

func (c *wallClock) end(*stage) error {
	c.leave()
	<-c.left
	return c.set(0)
}

// clockStepped steps the wall clock of the proxy while requests wait for their repeat.
func clockStepped() fault {
	c := &wallClock{}
	return fault{name: "clock of the machine stepped", settings: noBudget,
		how:     "a build of the proxy whose wall clock alone can be stepped: an hour ahead, then an hour behind, then right; 503 to every third first attempt, with Retry-After in seconds, as a date, or without; retry budget off",
		prepare: c.prepare, end: c.end,
		begin: func(st *stage) error {
			return errors.Join(orderUpstream("mode "+nowAndThen)(st), c.begin(st))
		},
		until: func(st *stage) bool {
			return c.seen.Load() >= 2 && time.Since(c.began) >= min(st.o.lasts, longestFault/2)
		},
		felt: func(st *stage) (felt, error) {
			wrong, err := st.up.order("waits")
			if err == nil && wrong != 0 {
				err = fmt.Errorf("%d waits between attempts were shorter than asked for or longer than %v", wrong, longestWait)
			}
			return felt{c.seen.Load(), "steps seen in the Date of its responses"}, err
		}}
}
