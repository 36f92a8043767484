package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/retryproxy/retryproxy/bench/internal/process"
	"github.com/retryproxy/retryproxy/bench/internal/testbed"
)

// way is what stands between clients and the provider.
type way struct {
	name  string
	judge bool // its rows must keep the promises
	start func(ctx context.Context, b *testbed.Bed, provider string) (addr string, err error)
}

const (
	direct     = "direct"
	haproxy    = "haproxy"
	retryproxy = "retryproxy"
)

// ways returns those that were asked for, in their order. direct has no start.
func (o *options) ways() (all []way) {
	for _, name := range o.through {
		w := way{name: name}
		switch name {
		case haproxy:
			w.start = startHAProxy
		case retryproxy:
			w.judge, w.start = true, o.startRetryproxy
		}
		all = append(all, w)
	}
	return all
}

// startRetryproxy starts it with the profile and nothing else.
func (o *options) startRetryproxy(ctx context.Context, b *testbed.Bed, provider string) (string, error) {
	p, err := b.Start(ctx, testbed.Spec{Program: o.proxy, Upstream: "http://" + provider, Env: append([]string{"RETRYPROXY_PROFILE=llm"}, o.set...)})
	if err != nil {
		return "", err
	}
	return p.Addr, nil
}

// haproxyConfig repeats what HAProxy can repeat without the risk of a second bill. It
// cannot repeat a 429, and it does not wait before it repeats a 503.
const haproxyConfig = `global
  maxconn 4000
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 600s
  option forwardfor
  retries 3
  retry-on conn-failure 503
  http-reuse safe
listen llm
  bind %s
  server s1 %s
`

func startHAProxy(_ context.Context, b *testbed.Bed, provider string) (string, error) {
	free, err := process.OwnAddresses(1)
	if err != nil {
		return "", err
	}
	dir, err := b.TempDir()
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(file, fmt.Appendf(nil, haproxyConfig, free[0], provider), 0o600); err != nil {
		return "", err
	}
	c, err := process.Start(exec.Command(haproxyProgram(), "-db", "-q", "-f", file), nil)
	if err != nil {
		return "", err
	}
	b.Later(c.Kill)
	if err := c.AwaitPort(free[0]); err != nil {
		return "", fmt.Errorf("haproxy: %w; it said:\n%s", err, c.Lines())
	}
	return free[0], nil
}

// haproxyProgram returns the path of HAProxy; "" if it is not installed. Debian has it where users have no path.
func haproxyProgram() string {
	for _, name := range []string{haproxy, "/usr/sbin/haproxy"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}
