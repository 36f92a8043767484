//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
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

// stepping returns the source of package time with a wall clock that can be stepped.
func stepping(source []byte) ([]byte, error) {
	if n := bytes.Count(source, []byte(nowAsIs)); n != 1 {
		return nil, fmt.Errorf("this Go's package time has %d times what is changed in it, instead of once:\n%s", n, nowAsIs)
	}
	return bytes.Replace(source, []byte(nowAsIs), []byte(nowStepped), 1), nil
}

// buildStepping builds the program so that its wall clock can be stepped. The
// first time it compiles the standard library, too, which takes a minute or two;
// then Go's build cache has it.
func buildStepping(ctx context.Context, dir string) (path string, err error) {
	found, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "time", program).Output()
	std, own, two := strings.Cut(strings.TrimSpace(string(found)), "\n")
	if err != nil || !two {
		return "", fmt.Errorf("go list says %q: %w", found, err)
	}
	source, err := os.ReadFile(filepath.Join(std, "time.go"))
	if err == nil {
		source, err = stepping(source)
	}
	if err != nil {
		return "", err
	}
	replace := map[string]string{} // which go build reads in place of, or beside, the others
	for name, content := range map[string]string{std + "/time.go": string(source), std + "/stepped.go": addedToTime, own + "/stepping.go": addedToProgram} {
		replace[name] = filepath.Join(dir, fmt.Sprintf("overlaid%d.go", len(replace)))
		if err := os.WriteFile(replace[name], []byte(content), 0o600); err != nil {
			return "", err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600)
	}
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "retryproxy")
	build := exec.CommandContext(ctx, "nice", "-n", "19", "go", "build", "-trimpath", "-buildvcs=false", "-overlay", filepath.Join(dir, "overlay.json"), "-o", path, program)
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
	st.Later(func() { _ = c.pipe.Close() })
	st.spec.Env = append(st.spec.Env, pipeVariable+"="+path)
	fmt.Fprintf(os.Stderr, "faults: %s: building the program with such a clock; the first time this takes a minute or two\n", st.f.name)
	st.spec.Program, err = buildStepping(st.ctx, st.dir)
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
	go func() {
		defer close(c.left)
		for off := step; c.set(off) == nil && c.shows(ctx, st.proxy, off); off = -off {
			c.seen.Add(1)
			rig.Sleep(ctx, st.o.lasts/2)
		}
	}()
	return nil
}

// shows waits until the Date of the proxy's own responses is off so far; a proxy that has ended has none.
func (c *wallClock) shows(ctx context.Context, p *rig.Proxy, off time.Duration) bool {
	for rig.Sleep(ctx, 10*time.Millisecond) {
		header, _, _ := p.Get("/healthz")
		if date, err := http.ParseTime(header.Get("Date")); err == nil && (time.Until(date)-off).Abs() < step/10 {
			return true
		}
	}
	return false
}

// clockStepped steps the wall clock of the proxy while requests wait for their retry.
func clockStepped() fault {
	c := &wallClock{}
	return fault{name: "clock of the machine stepped", settings: noBudget, mode: nowAndThen, what: "steps seen in the Date of its responses",
		how:     "a build of the proxy whose wall clock alone can be stepped: an hour ahead, then an hour behind, then right; 503 to every third first attempt, with Retry-After in seconds, as a date, or without; retry budget off",
		prepare: c.prepare, begin: c.begin,
		end: func(*stage) error {
			c.leave()
			<-c.left
			return c.set(0)
		},
		until: func(st *stage) bool {
			return c.seen.Load() >= 2 && time.Since(c.began) >= min(st.o.lasts, longestFault/2)
		},
		felt: func(st *stage) (int64, error) {
			wrong, err := st.up.order("waits")
			if err == nil && wrong != 0 {
				err = fmt.Errorf("%d waits between attempts were shorter than asked for or longer than %v", wrong, longestWait)
			}
			return c.seen.Load(), err
		}}
}
