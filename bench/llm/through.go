package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// way is what stands between clients and the provider.
type way struct {
	name  string
	judge bool // its rows must keep the promises
	paced bool // it must use the rate limits and meet no 429s
	once  bool // it has a row only for clients with their retries on
	start func(ctx context.Context, b *rig.Bed, provider string) (addrs []string, err error)
}

const (
	direct     = "direct"
	haproxy    = "haproxy"
	retryproxy = "retryproxy"
	fleet      = "fleet"
)

// ways returns those that were asked for, in their order. direct has no start.
func (o *options) ways() (all []way) {
	for _, name := range o.through {
		w := way{name: name}
		switch name {
		case haproxy:
			w.start = startHAProxy
		case retryproxy:
			w.judge, w.paced, w.start = true, true, o.startRetryproxy
		case fleet:
			w.judge, w.paced, w.once, w.start = true, true, true, o.startFleet
		}
		all = append(all, w)
	}
	return all
}

// settings are those of the rows of retryproxy: what docs/how-to/llm.md recommends.
func (o *options) settings() []string {
	return append([]string{"RETRYPROXY_PROFILE=llm", "RETRYPROXY_RATE_LIMIT=auto", "RETRYPROXY_RATE_LIMIT_KEY=json:model"}, o.set...)
}

// startRetryproxy starts one process.
func (o *options) startRetryproxy(ctx context.Context, b *rig.Bed, provider string) ([]string, error) {
	p, err := b.Start(ctx, rig.Spec{Program: o.proxy, Upstream: "http://" + provider, Env: o.settings()})
	if err != nil {
		return nil, err
	}
	return []string{p.Addr}, nil
}

// startFleet starts many processes that share through a Redis of their own.
func (o *options) startFleet(ctx context.Context, b *rig.Bed, provider string) ([]string, error) {
	free, err := rig.OwnAddresses(1)
	if err != nil {
		return nil, err
	}
	host, port, _ := strings.Cut(free[0], ":")
	c, err := rig.Start(exec.Command("redis-server", "--bind", host, "--port", port, "--save", "", "--appendonly", "no"), nil)
	if err != nil {
		return nil, err
	}
	b.Later(c.Kill)
	if err := c.AwaitPort(free[0]); err != nil {
		return nil, err
	}
	spec := rig.Spec{Program: o.proxy, Upstream: "http://" + provider, Env: append(o.settings(), "RETRYPROXY_POSITION=outbound", "RETRYPROXY_SHARED=redis://"+free[0]+"/0")}
	all, err := b.StartMany(ctx, spec, o.processes)
	if err != nil {
		return nil, err
	}
	var addrs []string
	for _, p := range all {
		addrs = append(addrs, p.Addr)
	}
	return addrs, nil
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

func startHAProxy(_ context.Context, b *rig.Bed, provider string) ([]string, error) {
	free, err := rig.OwnAddresses(1)
	if err != nil {
		return nil, err
	}
	dir, err := b.TempDir()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(file, fmt.Appendf(nil, haproxyConfig, free[0], provider), 0o600); err != nil {
		return nil, err
	}
	c, err := rig.Start(exec.Command(haproxyProgram(), "-db", "-q", "-f", file), nil)
	if err != nil {
		return nil, err
	}
	b.Later(c.Kill)
	if err := c.AwaitPort(free[0]); err != nil {
		return nil, fmt.Errorf("haproxy: %w; it said:\n%s", err, c.Lines())
	}
	return []string{free[0]}, nil
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
