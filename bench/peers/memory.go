package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// settle is how long a process rests before its memory is measured.
const settle = 3 * time.Second

// memory measures each proxy, alone, up to three times. With settings it measures retryproxy only.
func memory(measure func(s *stage, p *rig.Proxy) (float64, error), env ...string) func(s *stage, r *result) error {
	return func(s *stage, r *result) error {
		all := s.proxies()
		if env != nil {
			all = []string{ours}
		}
		for range min(s.rounds, 3) {
			for _, name := range all {
				if err := s.alone(name, env, func(p *rig.Proxy) error {
					n, err := measure(s, p)
					r.add(name, n)
					return err
				}); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
			s.progress.Printf("%s: %s", r.Case, r.last())
		}
		return nil
	}
}

// alone starts a proxy, calls measure and ends the proxy. It starts a copy of retryproxy, so that no
// other process shares its pages.
func (s *stage) alone(name string, env []string, measure func(p *rig.Proxy) error) error {
	var b rig.Bed
	defer b.End()
	mine := *s
	if name == ours {
		mine.proxy = filepath.Join(b.TempDir(), ours)
		if out, err := exec.CommandContext(s.ctx, "cp", s.proxy, mine.proxy).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	p, err := mine.proxyOn(&b, name, s.cores.One, env...)
	if err != nil {
		return err
	}
	return measure(p)
}

// atRest returns the memory of an idle proxy that has served a request.
func (s *stage) atRest(p *rig.Proxy) (int64, error) {
	c, err := ask(p.Addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	rig.Sleep(s.ctx, settle)
	return p.PSS()
}

// ask sends a request on a new connection and reads its response.
func ask(addr string) (net.Conn, error) {
	c, err := send(addr, "/small")
	if err != nil {
		return nil, err
	}
	if err = readOK(bufio.NewReader(c)); err != nil {
		_ = c.Close()
	}
	return c, err
}

// readOK reads a response. A status other than 200 is an error.
func readOK(in *bufio.Reader) error {
	res, err := http.ReadResponse(in, nil)
	if err == nil {
		_, err = io.Copy(io.Discard, res.Body)
	}
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	return err
}

// send sends a request on a new connection.
func send(addr, path string) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	_, err = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: peers\r\nAccept: */*\r\n\r\n", path)
	return c, err
}

// perConnection makes n connections and returns by how many KiB each made the proxy larger.
func (s *stage) perConnection(p *rig.Proxy, n int, open func() (net.Conn, error), ready func() error) (float64, error) {
	before, err := s.atRest(p)
	if err != nil {
		return 0, err
	}
	for range n {
		c, err := open()
		if err != nil {
			return 0, err
		}
		defer c.Close()
	}
	if err := ready(); err != nil {
		return 0, err
	}
	rig.Sleep(s.ctx, settle)
	after, err := p.PSS()
	return float64(after-before) / kib / float64(n), err
}

// awaitWaiting waits until all requests are in backoff. Every response is a 503 with a Retry-After of a
// minute, so the case turns off what reacts to a failing upstream.
func (s *stage) awaitWaiting(p *rig.Proxy) error {
	return rig.Await(s.ctx, fmt.Sprintf("%d requests waiting", s.waiting), 30*time.Second, func() bool {
		m, err := p.Scrape()
		return err == nil && int(m.Sum("requests_waiting")) >= s.waiting
	})
}

// instructions is the name of the case that counts instructions with callgrind, a tool of valgrind. The
// count includes neither the kernel, which has two thirds of the work, nor the effects of caches.
const instructions = "instructions"

// mostFunctions bounds the table of the most expensive functions.
const mostFunctions = 30

// isCount reports whether a case counts instructions, which takes long and has no goal.
func isCount(name string) bool { return strings.HasSuffix(name, instructions) }

// count counts the instructions of a request of load, with the wires of s.
func (s *stage) count(load rig.Load, r *result) error {
	var b rig.Bed
	defer b.End()
	dir := b.TempDir()
	program, err := withoutRDTSCP(s.proxy, dir)
	if err != nil {
		return err
	}
	out := filepath.Join(dir, "callgrind.out")
	p, err := b.Start(s.ctx, rig.Spec{Program: program, Upstream: s.upstreamURL(), Cores: s.cores.One,
		Env: []string{"GODEBUG=asyncpreemptoff=1"}, // callgrind miscounts interrupted signal handlers
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
	to := s.to(load, p.Addr)
	if _, err := to.Send(s.ctx); err != nil { // connections are made, buffers found
		return err
	}
	to.For = time.Duration(s.rounds) * slice
	before, err := p.Scrape()
	if err = errors.Join(err, counting("on")); err != nil {
		return err
	}
	sent, err := to.Send(s.ctx)
	if err = errors.Join(err, counting("off"), p.Alive()); err != nil {
		return err
	}
	after, err := p.Scrape() // h2load leaves out requests of its beginning, which is long here
	if err != nil {
		return err
	}
	requests := after.Sum("requests_total") - before.Sum("requests_total")
	if requests == 0 {
		return errors.New("no request was answered")
	}
	p.End() // callgrind writes its file
	text, err := exec.CommandContext(s.ctx, "callgrind_annotate", "--auto=no", out).Output()
	if err != nil {
		return fmt.Errorf("callgrind_annotate: %w; it said:\n%s", err, p.Lines())
	}
	total, table, err := annotated(string(text))
	r.add(ours, total/requests)
	r.sent(ours, sent)
	r.more = "\n" + table
	return err
}

// annotated returns the total of callgrind_annotate and the first lines of its table of functions.
func annotated(text string) (total float64, table string, err error) {
	m := totals.FindStringSubmatch(text)
	if m == nil {
		return 0, "", fmt.Errorf("callgrind_annotate has no total: %.500s", text)
	}
	total, err = strconv.ParseFloat(strings.ReplaceAll(m[1], ",", ""), 64)
	_, table, _ = strings.Cut(text, "file:function\n")
	lines := strings.SplitAfter(table, "\n")
	return total, strings.Join(lines[:min(mostFunctions+1, len(lines))], ""), err
}

var totals = regexp.MustCompile(`(?m)^ *([\d,]+).*PROGRAM TOTALS$`)

// withoutRDTSCP writes a copy of program with RDTSC in place of RDTSCP, which valgrind does not support.
// The Go runtime uses it for contended locks.
func withoutRDTSCP(program, dir string) (string, error) {
	code, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	// SHLQ $32, DX always follows; including it avoids changing data that looks the same.
	code = bytes.ReplaceAll(code, []byte{0x0f, 0x01, 0xf9, 0x48, 0xc1, 0xe2, 0x20}, []byte{0x0f, 0x31, 0x90, 0x48, 0xc1, 0xe2, 0x20})
	copied := filepath.Join(dir, filepath.Base(program))
	return copied, os.WriteFile(copied, code, 0o755) //nolint:gosec // it is run
}
