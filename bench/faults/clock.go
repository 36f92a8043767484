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
	"time"
)

// CLOCK_REALTIME is one for the whole machine: time namespaces have only the monotonic clocks, and
// libfaketime does not reach a static Go program. So the program is built once more, with an overlay
// of package time whose Now is right, an hour ahead and an hour behind in turn. What is monotonic in
// a time stays as it is, as when the machine's clock is stepped.
const (
	program = "github.com/retryproxy/retryproxy/cmd/retryproxy"
	step    = time.Hour
	steady  = 750 * time.Millisecond // between two steps: half of the shortest fault

	nowAsIs    = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	nowStepped = nowAsIs + "\tsec += [...]int64{0, %d, -%[1]d}[(mono-startNano)/%d%%3]\n"
)

// stepping returns the source of package time with a wall clock that steps.
func stepping(source []byte) ([]byte, error) {
	if n := bytes.Count(source, []byte(nowAsIs)); n != 1 {
		return nil, fmt.Errorf("this Go's package time has %d times what is changed in it, instead of once:\n%s", n, nowAsIs)
	}
	return bytes.Replace(source, []byte(nowAsIs), fmt.Appendf(nil, nowStepped, step/time.Second, steady), 1), nil
}

// buildStepping builds the program with such a clock. The first time it compiles the standard
// library, too, which takes a minute or two; then Go's build cache has it.
func buildStepping(ctx context.Context, dir string) (path string, err error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	file := strings.TrimSpace(string(root)) + "/src/time/time.go"
	source, err := os.ReadFile(file)
	if err == nil {
		source, err = stepping(source)
	}
	if err == nil {
		err = os.WriteFile(dir+"/time.go", source, 0o600)
	}
	if err != nil {
		return "", err
	}
	overlay, _ := json.Marshal(map[string]any{"Replace": map[string]string{file: dir + "/time.go"}})
	if err := os.WriteFile(dir+"/overlay.json", overlay, 0o600); err != nil {
		return "", err
	}
	path = filepath.Join(dir, "retryproxy")
	build := exec.CommandContext(ctx, "nice", "-n", "19", "go", "build", "-trimpath", "-buildvcs=false", "-overlay", dir+"/overlay.json", "-o", path, program)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, said)
	}
	return path, nil
}

// clockStepped steps the wall clock of the proxy while requests wait for their retry.
func clockStepped() fault {
	var seen int64        // steps
	var off time.Duration // how far the clock was off last, in whole steps
	var began time.Time
	return fault{name: "clock of the machine stepped", settings: noBudget, mode: nowAndThen, what: "steps seen in the Date of its responses",
		how: "a build of the proxy whose wall clock alone is stepped: an hour ahead, then an hour behind, then right; 503 to every third first attempt, with Retry-After in seconds, as a date, or without; retry budget off",
		prepare: func(st *stage) (err error) {
			fmt.Fprintf(os.Stderr, "faults: %s: building the program with such a clock; the first time this takes a minute or two\n", st.f.name)
			st.spec.Program, err = buildStepping(st.ctx, st.dir)
			return err
		},
		begin: func(*stage) error { began = time.Now(); return nil },
		until: func(st *stage) bool {
			header, _, _ := st.proxy.Get("/healthz")
			if date, err := http.ParseTime(header.Get("Date")); err == nil && time.Until(date).Round(step) != off {
				off = time.Until(date).Round(step)
				seen++
			}
			return seen >= 2 && time.Since(began) >= min(st.o.lasts, longestFault/2)
		},
		felt: func(st *stage) (int64, error) {
			wrong, err := st.up.order("waits")
			if err == nil && wrong != 0 {
				err = fmt.Errorf("%d waits between attempts were shorter than asked for or longer than %v", wrong, longestWait)
			}
			return seen, err
		}}
}
