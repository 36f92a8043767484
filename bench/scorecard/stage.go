package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/overload"
	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// stage is a row in progress in one arm.
type stage struct {
	rig.Bed
	o       *options
	row     *row
	arm     string
	servers []*server
	front   string // the virtual address; "" means none
	leads   atomic.Pointer[server]
	proxies []*rig.Proxy
	line    *rig.Timeline
}

// server is an endpoint, whose process may change.
type server struct {
	addr    string
	process atomic.Pointer[overload.Process]
	before  atomic.Int64 // requests of earlier processes
	now     atomic.Int64 // requests of this process
}

// atServers counts the maximum of concurrent requests that the servers report.
const atServers = "servers at once"

// scale returns a time of the row, which is shorter with --short.
func (o *options) scale(d time.Duration) time.Duration {
	if o.short {
		return d / 10
	}
	return d
}

// play plays a row in an arm.
func play(ctx context.Context, r *row, arm string, o *options) (*measures, error) {
	s := &stage{o: o, row: r, arm: arm, line: rig.NewTimeline()}
	defer s.End()
	for range max(r.servers, 1) {
		s.servers = append(s.servers, &server{addr: rig.OwnAddresses(1)[0]})
	}
	for i := range s.servers {
		if err := start(i)(s); err != nil {
			return nil, err
		}
	}
	if r.virtual {
		s.leads.Store(s.servers[0])
		var err error
		if s.front, err = s.Listen(rig.OwnAddresses(1)[0], s.forward); err != nil {
			return nil, err
		}
	}
	addrs, err := s.start(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", arm, err)
	}
	s.line.Begin()
	running, stop := context.WithTimeout(ctx, o.scale(r.length()))
	defer stop()
	var watching sync.WaitGroup
	for _, server := range s.servers {
		watching.Go(func() { s.watch(running, server) })
	}
	clients := s.clients(running, stop, addrs)
	err = s.follow(running)
	clients.Wait()
	stop()
	for _, p := range s.proxies {
		err = errors.Join(err, p.Alive())
	}
	for _, server := range s.servers {
		server.process.Load().Kill() // it may be stopped
	}
	watching.Wait()
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, fmt.Errorf("%s: %w", arm, err)
	}
	return s.measure(), nil
}

// upstreams returns the addresses of the upstream.
func (s *stage) upstreams() (addrs []string) {
	if s.front != "" {
		return []string{s.front}
	}
	for _, server := range s.servers {
		addrs = append(addrs, server.addr)
	}
	return addrs
}

// start starts the proxies of the arm and returns where clients send.
func (s *stage) start(ctx context.Context) (addrs []string, err error) {
	if s.o.start != nil {
		return s.o.start(s)
	}
	switch s.arm {
	case direct:
		return s.upstreams(), nil
	case haproxy:
		var p *rig.Proxy
		p, err = s.StartPeer(rig.Peer{Program: "haproxy", Args: []string{"-db", "-q", "-f"}, Config: overload.HAProxy(s.upstreams(), "", "")}, "", nil)
		s.proxies = []*rig.Proxy{p}
	default:
		settings := slices.Concat(s.row.settings, s.o.set)
		if s.arm == off {
			settings = append(settings, "RETRYPROXY_BREAKER=off", "RETRYPROXY_CONCURRENCY_LIMIT=off")
		}
		spec := rig.Spec{Program: s.o.proxy, Upstream: "http://" + strings.Join(s.upstreams(), ",http://"), Env: settings}
		s.proxies, err = s.StartMany(ctx, spec, max(s.row.proxies, 1))
	}
	if err != nil {
		return nil, err
	}
	return rig.Addrs(s.proxies), nil
}

// clients starts all clients. When the last request of users has its result, they stop the rest.
func (s *stage) clients(ctx context.Context, stop context.CancelFunc, addrs []string) *sync.WaitGroup {
	var all, users sync.WaitGroup
	for _, u := range s.row.users {
		u := u.scaled(s.o)
		users.Go(func() { u.run(ctx, addrs, s.line) })
	}
	for _, u := range s.row.others {
		u := u.scaled(s.o)
		all.Go(func() { u.disturb(ctx, addrs, s.line) })
	}
	for crowd, when := range map[*rig.Crowd]span{s.row.crowd: {0, s.row.end}, s.row.surge: s.row.fault} {
		if crowd == nil {
			continue
		}
		c := *crowd
		c.Seed += s.o.seed
		users.Go(func() {
			if s.line.Until(ctx, s.o.scale(when.from)) {
				ctx, cancel := context.WithTimeout(ctx, s.o.scale(when.to)-s.line.Since())
				defer cancel()
				c.Run(ctx, addrs, s.line).Wait()
			}
		})
	}
	all.Go(func() {
		users.Wait()
		s.line.Until(ctx, s.o.scale(s.row.end)) // steps may follow
		stop()
	})
	return &all
}

// follow takes the steps of the row.
func (s *stage) follow(ctx context.Context) error {
	for _, step := range s.row.steps {
		if !s.line.Until(ctx, s.o.scale(step.at)) {
			return nil // the clients have ended
		}
		if err := step.do(s); err != nil {
			return fmt.Errorf("after %v: %w", step.at, err)
		}
	}
	return nil
}

// watch asks a server for its load until ctx ends.
func (s *stage) watch(ctx context.Context, server *server) {
	for rig.Sleep(ctx, rig.Tick) {
		if most, total, err := server.process.Load().Load(); err == nil {
			s.line.Count(atServers, most)
			server.now.Store(int64(total))
		}
	}
}

// received returns the number of requests at all servers.
func (s *stage) received() (n int) {
	for _, server := range s.servers {
		n += int(server.before.Load() + server.now.Load())
	}
	return n
}

// forward forwards a connection to where the virtual address leads.
func (s *stage) forward(c net.Conn) {
	to, err := net.Dial("tcp", s.leads.Load().addr)
	if err != nil {
		rig.Reset(c)
		return
	}
	defer to.Close()
	go func() { _, _ = io.Copy(to, c); _ = to.Close() }()
	_, _ = io.Copy(c, to)
}

// start starts the process of server i again, with the model of the row.
func start(i int) func(s *stage) error { return startAs(i, nil) }

// startAs starts it with another model.
func startAs(i int, m *overload.Model) func(s *stage) error {
	return func(s *stage) error {
		as := s.row.model
		if m != nil {
			as = *m
		}
		p, err := overload.Start(&s.Bed, s.servers[i].addr, as)
		if err == nil {
			s.servers[i].process.Store(p)
		}
		return err
	}
}

// kill kills server i.
func kill(i int) func(s *stage) error {
	return func(s *stage) error {
		server := s.servers[i]
		server.process.Load().Kill()
		server.before.Add(server.now.Swap(0))
		return nil
	}
}

// signal sends server i a signal.
func signal(i int, number syscall.Signal) func(s *stage) error {
	return func(s *stage) error { return s.servers[i].process.Load().Signal(number) }
}

// order gives all servers an order.
func order(text string) func(s *stage) error {
	return func(s *stage) error {
		for _, server := range s.servers {
			if err := server.process.Load().Do(text); err != nil {
				return err
			}
		}
		return nil
	}
}

// lead lets the virtual address lead to server i from now on.
func lead(i int) func(s *stage) error {
	return func(s *stage) error { s.leads.Store(s.servers[i]); return nil }
}

// scaled returns u with its times as --short wants them.
func (u users) scaled(o *options) *users {
	when := make([]span, len(u.when))
	for i, w := range u.when {
		when[i] = span{o.scale(w.from), o.scale(w.to)}
	}
	u.when, u.patience = when, o.scale(u.patience)
	return &u
}
