package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// settle is how long a process is left alone before its memory is read.
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
			s.told.Line("%s: %s", r.Case, r.last())
		}
		return nil
	}
}

// alone starts a proxy for measure and ends it. retryproxy is a copy, so that nobody else on the
// machine shares its pages.
func (s *stage) alone(name string, env []string, measure func(p *rig.Proxy) error) error {
	var b rig.Bed
	defer b.End()
	mine := *s
	if name == ours {
		dir, err := b.TempDir()
		if err != nil {
			return err
		}
		mine.proxy = filepath.Join(dir, ours)
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

// atRest is the memory of a proxy that served a request and has nothing to do.
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
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil {
		_, err = io.Copy(io.Discard, res.Body)
	}
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	if err != nil {
		_ = c.Close()
	}
	return c, err
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

// awaitWaiting waits until all requests are in backoff. Every response is a 503 that asks for a
// minute, so what judges upstreams as a whole is off.
func (s *stage) awaitWaiting(p *rig.Proxy) error {
	return rig.Await(s.ctx, fmt.Sprintf("%d requests waiting", s.waiting), 30*time.Second, func() bool {
		m, err := p.Scrape()
		return err == nil && int(m.Sum("requests_waiting")) >= s.waiting
	})
}
