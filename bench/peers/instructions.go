package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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
	text, err := exec.CommandContext(s.ctx, "callgrind_annotate", "--threshold=100", "--auto=no", out).Output()
	if err != nil {
		return fmt.Errorf("callgrind_annotate: %w; it said:\n%s", err, p.Lines())
	}
	c := annotated(string(text), float64(sent.Requests))
	total := 0.0
	for _, n := range c {
		total += n
	}
	r.add(ours, total)
	r.sent(ours, sent)
	r.more = fmt.Sprintf("\nby package\n%s\nby function\n%s", table(c, packageOf, len(c), 10), table(c, strings.Clone, functionsTold, 0))
	return nil
}

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

// annotation is a line of callgrind_annotate: a count, its share, file:function, and the object.
var annotation = regexp.MustCompile(`(?m)^ *([\d,]+) +\([^)]*\) +\S*?:(\S+)`)

// annotated are the counts by function, without this module's name, for each request. To callgrind
// each depth of a recursion is a function.
func annotated(text string, requests float64) map[string]float64 {
	all := map[string]float64{}
	for _, m := range annotation.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.ParseFloat(strings.ReplaceAll(m[1], ",", ""), 64)
		name, _, _ := strings.Cut(m[2], "'")
		all[strings.ReplaceAll(name, "github.com/retryproxy/retryproxy/", "")] += n / requests
	}
	return all
}

// packageOf is the import path in a function's name.
func packageOf(function string) string {
	plain, _, _ := strings.Cut(function, "[")
	slash := strings.LastIndexByte(plain, '/') + 1
	dot := strings.IndexByte(plain[slash:], '.')
	if dot < 0 {
		return "others"
	}
	return plain[:slash+dot]
}

// table has the counts added up by what name makes of a function's: at most so many, of at least least.
func table(counts map[string]float64, name func(string) string, most int, least float64) string {
	sums := map[string]float64{}
	for function, n := range counts {
		sums[name(function)] += n
	}
	all := slices.SortedFunc(maps.Keys(sums), func(a, b string) int { return cmp.Or(cmp.Compare(sums[b], sums[a]), strings.Compare(a, b)) })
	var b strings.Builder
	for _, k := range all[:min(most, len(all))] {
		if sums[k] >= least {
			fmt.Fprintf(&b, "%8.0f  %s\n", sums[k], k)
		}
	}
	return b.String()
}
