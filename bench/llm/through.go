package main

import (
	"context"

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
		all = append(all, map[string]way{
			direct:     {name: name},
			haproxy:    {name: name, start: startHAProxy},
			retryproxy: {name: name, judge: true, paced: true, start: o.startRetryproxy},
			fleet:      {name: name, judge: true, paced: true, once: true, start: o.startFleet},
		}[name])
	}
	return all
}

// spec has the settings that docs/how-to/llm.md recommends.
func (o *options) spec(provider string, more ...string) rig.Spec {
	env := append([]string{"RETRYPROXY_PROFILE=llm", "RETRYPROXY_RATE_LIMIT=auto", "RETRYPROXY_RATE_LIMIT_KEY=json:model"}, o.set...)
	return rig.Spec{Program: o.proxy, Upstream: "http://" + provider, Env: append(env, more...)}
}

// startRetryproxy starts one process.
func (o *options) startRetryproxy(ctx context.Context, b *rig.Bed, provider string) ([]string, error) {
	p, err := b.Start(ctx, o.spec(provider))
	if err != nil {
		return nil, err
	}
	return []string{p.Addr}, nil
}

// startFleet starts many processes that share through a Redis of their own.
func (o *options) startFleet(ctx context.Context, b *rig.Bed, provider string) ([]string, error) {
	redis, err := b.StartPeer(rig.Peer{Program: "redis-server", Config: "bind {host}\nport {port}\ndir {dir}\nsave \"\"\n"}, "", nil)
	if err != nil {
		return nil, err
	}
	all, err := b.StartMany(ctx, o.spec(provider, "RETRYPROXY_POSITION=outbound", "RETRYPROXY_SHARED=redis://"+redis.Addr+"/0"), o.processes)
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
  bind {listen}
  server s1 {upstream}
`

func startHAProxy(_ context.Context, b *rig.Bed, provider string) ([]string, error) {
	p, err := b.StartPeer(rig.Peer{Program: haproxy, Args: []string{"-db", "-q", "-f"}, Config: haproxyConfig}, provider, nil)
	if err != nil {
		return nil, err
	}
	return []string{p.Addr}, nil
}
