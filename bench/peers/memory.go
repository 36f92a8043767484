package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/process"
	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// rest measures memory at rest. Each program is a copy, so that nobody else on
// the machine shares its pages.
func (s *stage) rest(r *result) error {
	for range min(s.o.rounds, 3) {
		for _, name := range s.o.proxies() {
			err := s.alone(name, nil, func(p *rig.Process) error {
				n, err := atRest(s.ctx, p)
				r.add(name, float64(n)/mib)
				return err
			})
			if err != nil {
				return err
			}
		}
		s.note("  %s", r.last())
	}
	return nil
}

// alone starts a proxy for measure and ends it.
func (s *stage) alone(name string, env []string, measure func(p *rig.Process) error) error {
	o := *s.o
	mine := *s
	mine.o = &o
	if name == rig.Retryproxy {
		dir, err := os.MkdirTemp("", "peers-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.proxy = filepath.Join(dir, "retryproxy")
		if out, err := exec.CommandContext(s.ctx, "cp", s.o.proxy, o.proxy).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	p, err := mine.proxy(name, s.cores.One, env...)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer p.End()
	if err := measure(p); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// atRest is the memory of a proxy that served a request and has nothing to do.
func atRest(ctx context.Context, p *rig.Process) (int64, error) {
	c, err := ask(p.Addr, "/small")
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := pause(ctx, settle); err != nil {
		return 0, err
	}
	return p.PSS()
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ask sends a request on a new connection and reads its response.
func ask(addr, path string) (net.Conn, error) {
	c, err := send(addr, path)
	if err != nil {
		return nil, err
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil {
		_, err = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// send sends a request on a new connection.
func send(addr, path string) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: peers\r\nAccept: */*\r\n\r\n", path); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// idle measures what a connection costs that has carried a request and waits for the next.
func (s *stage) idle(r *result) error {
	for range min(s.o.rounds, 3) {
		for _, name := range s.o.proxies() {
			err := s.alone(name, nil, func(p *rig.Process) error {
				return s.growth(p, s.o.connections, func() (net.Conn, error) { return ask(p.Addr, "/small") },
					func() error { return pause(s.ctx, settle) },
					func(per float64) { r.add(name, per) })
			})
			if err != nil {
				return err
			}
		}
		s.note("  %s", r.last())
	}
	return nil
}

// growth makes n connections and tells by how many KiB each of them made the proxy larger.
func (s *stage) growth(p *rig.Process, n int, open func() (net.Conn, error), ready func() error, tell func(per float64)) error {
	before, err := atRest(s.ctx, p)
	if err != nil {
		return err
	}
	all := make([]net.Conn, 0, n)
	defer func() {
		for _, c := range all {
			_ = c.Close()
		}
	}()
	for range n {
		c, err := open()
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	if err := ready(); err != nil {
		return err
	}
	after, err := p.PSS()
	tell(float64(after-before) / kib / float64(n))
	return err
}

// waiting measures what a request costs that waits before its retry. Every
// answer is a 503 that asks for a minute, so what judges upstreams as a whole is off.
func (s *stage) waiting(r *result) error {
	for range min(s.o.rounds, 3) {
		free, err := process.FreeAddresses(1)
		if err != nil {
			return err
		}
		admin := free[0]
		env := []string{"RETRYPROXY_ADMIN_LISTEN=" + admin, "RETRYPROXY_BUDGET_RATIO=off", "RETRYPROXY_BREAKER=off", "RETRYPROXY_CONCURRENCY_LIMIT=off", "RETRYPROXY_REQUEST_TIMEOUT=3m"}
		err = s.alone(rig.Retryproxy, env, func(p *rig.Process) error {
			return s.growth(p, s.o.waiting, func() (net.Conn, error) { return send(p.Addr, "/busy/60") },
				func() error { return s.awaitWaiting(admin) },
				func(per float64) { r.add(rig.Retryproxy, per) })
		})
		if err != nil {
			return err
		}
		s.note("  %s", r.last())
	}
	return nil
}

// awaitWaiting waits until all requests are in backoff, then a little.
func (s *stage) awaitWaiting(admin string) error {
	for end := time.Now().Add(30 * time.Second); ; {
		n, err := gauge(s.ctx, "http://"+admin+"/metrics", "retryproxy_requests_waiting")
		if err != nil {
			return err
		}
		if n >= s.o.waiting {
			return pause(s.ctx, settle)
		}
		if time.Now().After(end) {
			return fmt.Errorf("only %d of %d requests wait", n, s.o.waiting)
		}
		if err := pause(s.ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// gauge sums a metric over all its labels.
func gauge(ctx context.Context, url, name string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	sum := 0.0
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), name); ok && (rest[0] == '{' || rest[0] == ' ') {
			v, _ := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
			sum += v
		}
	}
	return int(sum), nil
}

// start measures the time from the start of the program to its first response.
func (s *stage) start(r *result) error {
	for range max(s.o.rounds, 5) {
		for _, name := range s.o.proxies() {
			took, err := rig.StartToAnswer(s.ctx, name, &rig.Spec{Upstream: s.upstream.Addr, Cores: s.cores.One, Program: s.o.proxy}, "/small")
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			r.add(name, float64(took.Microseconds())/1e3)
		}
	}
	s.note("  %s", r.last())
	return nil
}
