package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// counted is the proxy under callgrind.
type counted struct {
	*rig.Process
	out string // where callgrind writes to at its end, with a number behind it for each dump
}

// startCounted starts program under callgrind, not counting yet.
func startCounted(program, dir, upstream string, cores []int) (*counted, error) {
	runnable, err := withoutRDTSCP(program, dir)
	if err != nil {
		return nil, err
	}
	out := filepath.Join(dir, "callgrind.out")
	p, err := rig.StartProxy(rig.Retryproxy, &rig.Spec{
		Upstream: upstream, Cores: cores, Program: runnable,
		Env: []string{"GODEBUG=asyncpreemptoff=1"}, // callgrind loses count of signal handlers that others interrupt
		By:  []string{"valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=" + out},
	})
	if err != nil {
		return nil, err
	}
	return &counted{Process: p, out: out}, nil
}

// withoutRDTSCP is a copy of program that reads the processor's counter by RDTSC, as
// valgrind knows no RDTSCP. The runtime uses it when threads meet at one of its locks.
func withoutRDTSCP(program, dir string) (string, error) {
	code, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	// Each is followed by SHLQ $32, DX: two bytes more tell an instruction from data.
	code = bytes.ReplaceAll(code, []byte{0x0f, 0x01, 0xf9, 0x48, 0xc1, 0xe2, 0x20}, []byte{0x0f, 0x31, 0x90, 0x48, 0xc1, 0xe2, 0x20})
	copied := filepath.Join(dir, filepath.Base(program))
	return copied, os.WriteFile(copied, code, 0o755) //nolint:gosec // it is run
}

// counting begins or ends the counting.
func (p *counted) counting(ctx context.Context, on bool) error {
	word := "off"
	if on {
		word = "on"
	}
	said, err := exec.CommandContext(ctx, "callgrind_control", "-i", word, strconv.Itoa(p.PID())).CombinedOutput()
	if err != nil {
		return fmt.Errorf("callgrind_control -i %s: %w: %s", word, err, said)
	}
	return nil
}

// read ends the proxy and gives what was counted.
func (p *counted) read(requests int) (*counts, error) {
	p.End()
	f, err := os.Open(p.out)
	if err != nil {
		return nil, fmt.Errorf("callgrind wrote nothing: %w; it said:\n%s", err, p.Lines())
	}
	defer f.Close()
	c := &counts{requests: requests, byFunction: map[string]int64{}}
	return c, c.parse(f)
}

// parse reads callgrind's own format
// (https://valgrind.org/docs/manual/cl-format.html): after a line "fn=(id) name", each line
// of a position and a cost belongs to that function, but for the one behind
// "calls=", which is what the function called cost. Names come with the first use of their id.
func (c *counts) parse(r io.Reader) error {
	names, function, skip := map[string]string{}, "", false
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		key, rest, isKey := strings.Cut(lines.Text(), "=")
		switch {
		case isKey && (key == "fn" || key == "cfn"):
			id, name, named := strings.Cut(rest, " ")
			if named {
				names[id] = cutAt(name, "'") // to callgrind each depth of a recursion is a function
			}
			if key == "fn" {
				function = names[id]
			}
		case isKey && key == "calls":
			skip = true
		case isKey:
		case skip:
			skip = false
		default:
			c.add(function, lines.Text())
		}
	}
	return lines.Err()
}

// add adds the cost in a line of a position and a cost.
func (c *counts) add(function, line string) {
	position, cost, ok := strings.Cut(line, " ")
	if !ok || position == "" || !strings.ContainsAny(position[:1], "+-*0123456789") {
		return
	}
	if n, err := strconv.ParseInt(strings.TrimSpace(cost), 10, 64); err == nil {
		c.byFunction[function] += n
	}
}
