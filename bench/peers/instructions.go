package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// instructions is the case that counts them by callgrind, a tool of valgrind. It says nothing of the
// kernel's part, which is two thirds of a request, nor of caches.
const instructions = "instructions"

// functionsTold is how many of the most expensive functions the table has.
const functionsTold = 30

func (s *stage) instructions(r *result) error {
	var b rig.Bed
	defer b.End()
	dir, err := b.TempDir()
	if err != nil {
		return err
	}
	program, err := withoutRDTSCP(s.proxy, dir)
	if err != nil {
		return err
	}
	out := filepath.Join(dir, "callgrind.out")
	p, err := b.Start(s.ctx, rig.Spec{Program: program, Upstream: "http://" + s.upstream, Cores: s.cores.One,
		Env: []string{"GODEBUG=asyncpreemptoff=1"}, // callgrind loses count of signal handlers that others interrupt
		By:  []string{"valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=" + out}})
	if err != nil {
		return err
	}
	counting := func(word string) error {
		said, err := exec.CommandContext(s.ctx, "callgrind_control", "-i", word, strconv.Itoa(p.PID())).CombinedOutput()
		if err != nil {
			return fmt.Errorf("callgrind_control -i %s: %w: %s", word, err, said)
		}
		return nil
	}
	load := s.to(rig.Load{URL: "/", Connections: 64}, p.Addr)
	if _, err := load.Send(s.ctx); err != nil { // connections are made, buffers found
		return err
	}
	load.For = time.Duration(s.rounds) * s.slice
	if err := counting("on"); err != nil {
		return err
	}
	sent, err := load.Send(s.ctx)
	if err = errors.Join(err, counting("off"), p.Alive()); err != nil {
		return err
	}
	if sent.Requests == 0 {
		return errors.New("no request was answered")
	}
	p.End() // callgrind writes its file
	text, err := exec.CommandContext(s.ctx, "callgrind_annotate", "--auto=no", out).Output()
	if err != nil {
		return fmt.Errorf("callgrind_annotate: %w; it said:\n%s", err, p.Lines())
	}
	total, table, err := annotated(string(text))
	r.add(ours, total/float64(sent.Requests))
	r.sent(ours, sent)
	r.more = "\n" + table
	return err
}

// annotated returns what callgrind_annotate counts in all, and its first lines by function.
func annotated(text string) (total float64, table string, err error) {
	m := totals.FindStringSubmatch(text)
	if m == nil {
		return 0, "", fmt.Errorf("callgrind_annotate has no total: %.500s", text)
	}
	total, err = strconv.ParseFloat(strings.ReplaceAll(m[1], ",", ""), 64)
	_, table, _ = strings.Cut(text, "file:function\n")
	lines := strings.SplitAfter(table, "\n")
	return total, strings.Join(lines[:min(functionsTold+1, len(lines))], ""), err
}

var totals = regexp.MustCompile(`(?m)^ *([\d,]+).*PROGRAM TOTALS$`)

// withoutRDTSCP is a copy of program that reads the processor's counter by RDTSC, since valgrind knows
// no RDTSCP. The runtime uses it when threads meet at one of its locks.
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
