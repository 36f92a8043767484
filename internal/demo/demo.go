// Package demo is `retryproxy demo`. It runs a flaky upstream, retryproxy in front of it, and a
// little traffic. So a new user sees within seconds what retries change, and can send requests too.
//
// It sends the same requests at the same time to the upstream directly and through the proxy. The
// upstream fails by a plan made from a seed, so both sides get the same failures. The proxy is the
// one of `retryproxy serve` with its default settings, including the status page.
//
// Nothing leaves the machine, and everything has ended when Run returns.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/retryproxy/retryproxy/internal/adminclient"
	"github.com/retryproxy/retryproxy/internal/buildinfo"
	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/logwriter"
	"github.com/retryproxy/retryproxy/internal/serve"
)

// Options configures Run.
type Options struct {
	Length time.Duration // 0: until its context ends
	Rate   int           // requests per second to each side, 1 to MaxRate
	Seed   uint64        // determines the failures
	Out    io.Writer
	Build  buildinfo.Build

	// Listen and AdminListen are the addresses of the proxy; "" means 127.0.0.1 and the usual
	// ports. If one is in use, a free port replaces it.
	Listen, AdminListen string
}

// MaxRate limits Options.Rate: every request opens a connection, and the port of a closed one is
// unusable for a minute.
const MaxRate = 200

// startTimeout is how long the proxy may take to start, and to stop after the traffic.
const startTimeout = 10 * time.Second

// readyInterval is how often the proxy is asked whether it is ready. A request is cheap for it.
const readyInterval = 100 * time.Millisecond

// Run runs the demo until its length has passed, ctx ends, or the proxy gets a signal to end.
func Run(ctx context.Context, o Options) error {
	up, err := newFlaky(o.Seed)
	if err != nil {
		return fmt.Errorf("listen for the upstream: %w", err)
	}
	go up.serve()
	defer up.close()
	p, err := startProxy(ctx, &o, up.url())
	if err != nil {
		return err
	}
	defer p.end()
	until, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(p.ended, stop)()
	if o.Length > 0 {
		defer time.AfterFunc(o.Length, stop).Stop()
	}
	fmt.Fprint(o.Out, opening(&o, up.url(), p))
	t := newTraffic(o.Seed, o.Rate, up.url(), p.url)
	began := time.Now()
	t.run(ctx, until, func() { fmt.Fprint(o.Out, t.line(time.Since(began))) })
	fmt.Fprint(o.Out, "\n"+t.report(time.Since(began), up, p.counts(t.tally[proxied].requests())))
	return nil
}

// proxyProcess is a running proxy.
type proxyProcess struct {
	url, admin string
	ask        adminclient.Ask
	ended      context.Context // done when the proxy has ended
	end        func()          // stops it, and returns when it has ended
}

// startProxy starts the proxy and waits until it is ready.
func startProxy(ctx context.Context, o *Options, upstream string) (*proxyProcess, error) {
	listen, admin := freeAddress(o.Listen, "127.0.0.1:8080"), freeAddress(o.AdminListen, "127.0.0.1:9797")
	address, err := config.ParseAddress(admin)
	if err != nil {
		return nil, err
	}
	running, kill := context.WithCancel(context.WithoutCancel(ctx))
	ended, over := context.WithCancelCause(context.Background())
	go func() {
		log := logwriter.New(io.Discard)
		err := serve.Run(running, serve.Options{
			Env: environment(listen, admin, upstream), Getenv: func(string) string { return "" }, Log: log, Build: o.Build,
		})
		log.Close(time.Second)
		over(err)
	}()
	p := &proxyProcess{
		url: "http://" + listen, admin: "http://" + admin, ask: adminclient.To(address, startTimeout), ended: ended,
		end: func() { kill(); <-ended.Done() },
	}
	starting, cancel := context.WithTimeout(ended, startTimeout)
	defer cancel()
	if err := p.awaitReady(starting); err != nil {
		p.end()
		if cause := context.Cause(ended); cause != context.Canceled {
			err = cause
		}
		return nil, fmt.Errorf("start the proxy: %w", err)
	}
	return p, nil
}

// awaitReady returns nil as soon as the proxy is ready. If ctx ends before, it returns why the proxy was
// not ready.
func (p *proxyProcess) awaitReady(ctx context.Context) error {
	last := errors.New("no response yet")
	for ctx.Err() == nil {
		status, body, err := p.ask(ctx, http.MethodGet, "/readyz")
		switch {
		case err == nil && status == http.StatusOK:
			return nil
		case ctx.Err() != nil: // the error is only that of ctx
			return last
		case err == nil:
			err = errors.New(body)
		}
		last = err
		select {
		case <-ctx.Done():
		case <-time.After(readyInterval):
		}
	}
	return last
}

// environment returns the variables that a user would set. Everything else keeps its default.
func environment(listen, admin, upstream string) []string {
	return []string{
		"RETRYPROXY_UPSTREAM=" + upstream,
		"RETRYPROXY_LISTEN=" + listen,
		"RETRYPROXY_ADMIN_LISTEN=" + admin,
		"RETRYPROXY_ROUTES=search,upload,checkout",
		"RETRYPROXY_ROUTE_SEARCH_PATH=/search/*",
		"RETRYPROXY_ROUTE_UPLOAD_PATH=/upload/*",
		"RETRYPROXY_ROUTE_CHECKOUT_PATH=/checkout",
		"RETRYPROXY_DRAIN_DELAY=0s",
		"RETRYPROXY_DRAIN_TIMEOUT=2s",
	}
}

// freeAddress returns address, or usual if that is "", or one with a free port if it is in use.
func freeAddress(address, usual string) string {
	if address == "" {
		address = usual
	}
	for _, a := range []string{address, "127.0.0.1:0"} {
		if l, err := net.Listen("tcp", a); err == nil {
			address = l.Addr().String()
			_ = l.Close()
			return address
		}
	}
	return address // the proxy reports what is wrong with it
}

// counts returns the counts of /metrics for each route, including all requests that were answered;
// nil if the proxy has ended.
func (p *proxyProcess) counts(answered int) map[string]*counts {
	var last map[string]*counts
	for range 100 { // a request is counted a moment after its response has arrived
		_, text, err := p.ask(p.ended, http.MethodGet, "/metrics")
		if err != nil {
			return last
		}
		now, err := parseCounts(text)
		if err != nil {
			return last
		}
		last = now
		n := 0.0
		for _, c := range last {
			n += c.requests()
		}
		if int(n) >= answered {
			return last
		}
		time.Sleep(20 * time.Millisecond)
	}
	return last
}

// opening returns a text about what runs and what to try.
func opening(o *Options, upstream string, p *proxyProcess) string {
	length := "until Ctrl-C"
	if o.Length > 0 {
		length = "for " + o.Length.String()
	}
	return fmt.Sprintf(`retryproxy demo %s: %d requests a second, sent without retries and with retryproxy (seed %d)

  upstream   %s  503 in bursts, 429 with Retry-After: 1, resets, slow answers
  retryproxy %s  in front of it, default settings
  page       %s/

Try meanwhile:

  curl -i %[4]s/search/shoes  # without retries
  curl -i %[5]s/search/shoes  # with retries
  curl -i -d item=1 %[5]s/checkout  # a POST is not retried once it was sent
  curl -i -d item=1 -H 'Idempotency-Key: "1"' %[5]s/checkout  # but with a key it is
  curl -s %[6]s/metrics | grep ^retryproxy_outcomes

`, length, o.Rate, o.Seed, upstream, p.url, p.admin)
}
