package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/internal/admin"
	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// closePatience is how long each server may take to end.
const closePatience = 2 * time.Second

// stage is everything that runs: upstream, proxy and admin server, on loopback.
type stage struct {
	upstream *flaky
	proxy    *proxy.Server
	admin    *admin.Server
	metrics  *metrics.Metrics
	routes   []string // by name, the default one last

	kill    context.CancelFunc // ends the proxy at once
	running sync.WaitGroup
}

// environment is what a user would set for the same: everything else keeps its
// default.
func environment(listen, adminListen, upstream string) []string {
	return []string{
		"RETRYPROXY_UPSTREAM=" + upstream,
		"RETRYPROXY_LISTEN=" + listen,
		"RETRYPROXY_ADMIN_LISTEN=" + adminListen,
		"RETRYPROXY_ROUTES=search,upload,checkout",
		"RETRYPROXY_ROUTE_SEARCH_PATH=/search/*",
		"RETRYPROXY_ROUTE_UPLOAD_PATH=/upload/*",
		"RETRYPROXY_ROUTE_CHECKOUT_PATH=/checkout",
	}
}

// open starts all of it, or nothing. Addresses in use give way to free ports.
func open(o *Options, seed uint64, drain func()) (*stage, error) {
	up, err := newFlaky(seed)
	if err != nil {
		return nil, fmt.Errorf("listen for the upstream: %w", err)
	}
	s := &stage{upstream: up, metrics: o.Metrics, kill: func() {}}
	s.running.Go(up.serve)
	if err := s.openProxy(o); err != nil {
		s.close()
		return nil, err
	}
	if err := s.openAdmin(o.AdminListen, drain); err != nil {
		s.close()
		return nil, fmt.Errorf("listen for metrics: %w", err)
	}
	return s, nil
}

// openProxy tries the address asked for, then a free port.
func (s *stage) openProxy(o *Options) error {
	var errs []error
	for _, listen := range []string{o.Listen, anyPort} {
		config, err := s.configure(listen, o)
		if err != nil {
			return err
		}
		server, err := proxy.New(config)
		if err != nil {
			return err
		}
		if err = server.Listen(); err == nil {
			s.serveProxy(server, config.RetryBufferTotalBytes)
			return nil
		}
		errs = append(errs, fmt.Errorf("listen for clients: %w", err))
	}
	return errors.Join(errs...)
}

func (s *stage) configure(listen string, o *Options) (*proxy.Config, error) {
	set, problems := config.Load(environment(listen, o.AdminListen, s.upstream.url()))
	if err := problems.Err(); err != nil {
		return nil, err
	}
	c, err := config.Build(set)
	if err != nil {
		return nil, err
	}
	c.Observe = func(route string) func() proxy.Observer {
		r := s.metrics.Route(route)
		return func() proxy.Observer { return r.Near() }
	}
	c.Refused = func(why http1.Refusal) { s.metrics.Refused(why.String()) }
	s.routes = nil
	for _, r := range append(c.Routes, c.Default) {
		s.routes = append(s.routes, r.Name)
	}
	return c, nil
}

func (s *stage) serveProxy(server *proxy.Server, replayLimit int64) {
	s.proxy = server
	s.metrics.ConfigLoaded(true, time.Now())
	s.metrics.Watch(func() metrics.Snapshot { return snapshot(server.Stats(), replayLimit) })
	ctx, kill := context.WithCancel(context.Background())
	s.kill = kill
	s.running.Go(func() { _ = server.Serve(ctx) })
}

func (s *stage) openAdmin(listen string, drain func()) error {
	server := admin.New(admin.Options{
		Metrics:      s.metrics.Handler(),
		Ready:        func() error { return nil },
		Config:       func() any { return environment(hostport(s.proxyURL()), hostport(s.adminURL()), s.upstream.url()) },
		Drain:        drain,
		Quit:         drain,
		RetryPercent: admin.RetryPercent{Get: s.proxy.RetryPercent, Set: s.proxy.SetRetryPercent},
	})
	if err := server.Listen("tcp", listen); err != nil {
		if err := server.Listen("tcp", anyPort); err != nil {
			return err
		}
	}
	s.admin = server
	s.running.Go(func() { _ = server.Serve() })
	return nil
}

func (s *stage) proxyURL() string { return "http://" + s.proxy.Addrs()[0].String() }
func (s *stage) adminURL() string { return "http://" + s.admin.Addr().String() }

func hostport(url string) string { return strings.TrimPrefix(url, "http://") }

// drain ends the proxy, so that every request has its outcome. Metrics can
// still be read.
func (s *stage) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	if s.proxy != nil {
		_ = s.proxy.Drain(ctx) // its error says that requests were cut off, and they count as such
	}
	s.kill()
}

// close ends all of it and returns when it has ended.
func (s *stage) close() {
	s.drain()
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	if s.admin != nil {
		_ = s.admin.Close(ctx)
	}
	s.upstream.close(ctx)
	s.running.Wait()
}

// snapshot puts the proxy's picture into the form that metrics shows.
func snapshot(st proxy.Stats, replayLimit int64) metrics.Snapshot {
	out := metrics.Snapshot{Connections: st.Connections, AcceptPauses: st.AcceptPauses, RetryBufferBytes: st.RetryBufferUsed, RetryBufferLimitBytes: replayLimit}
	for i := range st.Upstreams {
		u := &st.Upstreams[i]
		out.Upstreams = append(out.Upstreams, metrics.Upstream{
			Name: u.Name, Idle: u.Pool.Idle, Active: u.Pool.Active, Dialing: u.Pool.Dialing,
			Dials: u.Pool.Dials, Reuses: u.Pool.Reuses, DialErrors: u.Pool.DialErrors[:], IdleCloses: u.Pool.IdleCloses,
			HasBudget: u.HasBudget, BudgetTokens: u.BudgetTokens,
		})
	}
	return out
}

// anyPort is a free port on loopback, of the system's choice.
const anyPort = "127.0.0.1:0"
