package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/admin"
	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/assemble"
	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/page"
	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/settings"
	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/systemd"
	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/watch"
	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// app is a serving process: the data path, the admin server, and what carries
// new settings to them. Its life is newApp and one run.
type app struct {
	env     []string
	log     *zap.Logger
	level   zap.AtomicLevel
	metrics *metrics.Metrics
	proxy   *proxy.Server
	admin   *admin.Server // nil when off
	page    *page.Page    // likewise
	fleet   sharer        // nil: nothing is shared
	tracer  tracer        // nil when no spans are made
	files   *watch.Files
	inForce atomic.Pointer[inForce]
	phase   atomic.Pointer[string] // why it is not ready; nil when it is
	drain   chan struct{}          // asked to drain by the admin server; room for one
	quit    chan struct{}          // asked to end without delay; room for one
	changed chan struct{}          // a file changed; room for one

	ending    *admin.End
	drainedBy time.Time // when the drain's time is over; zero before it began

	systemd *systemd.Sockets // what systemd opened for us
}

// inForce is one version of the configuration.
type inForce struct {
	settings *settings.Settings
	problems settings.Problems
	config   *proxy.Config
}

var (
	phaseStarting = "starting"
	phaseDraining = "draining"
)

// newApp builds everything and opens nothing. Its errors are of the settings:
// certificates that cannot be read.
func newApp(env []string, s *settings.Settings, problems settings.Problems, stderr io.Writer) (*app, error) {
	level := zap.NewAtomicLevelAt(levelOf(s))
	a := &app{
		env: env, level: level, log: newLogger(stderr, s.LogFormat, level), metrics: newMetrics(), files: watch.New(s.Files()...),
		drain: make(chan struct{}, 1), quit: make(chan struct{}, 1), changed: make(chan struct{}, 1), systemd: &systemd.Sockets{},
		ending: admin.NewEnd(),
	}
	a.phase.Store(&phaseStarting)
	if !s.AdminListen.Off() {
		a.page = a.newPage()
	}
	var err error
	if a.fleet, err = newFleet(s, a.log); err != nil {
		return nil, fmt.Errorf("%sSHARED: %w", settings.Prefix, err)
	}
	if err := a.startTracing(); err != nil {
		return nil, err
	}
	c, err := a.configure(s)
	if err != nil {
		return nil, err
	}
	if a.proxy, err = proxy.New(c); err != nil {
		return nil, err
	}
	a.proxy.SetRetryPercent(s.RetryPercent)
	a.inForce.Store(&inForce{settings: s, problems: problems, config: c})
	a.metrics.Watch(a.snapshot)
	if !s.AdminListen.Off() {
		a.admin = admin.New(admin.Options{
			Metrics: a.metrics.Handler(), Ready: a.ready, Config: a.view, Drain: func() { poke(a.drain) }, Quit: func() { poke(a.quit) }, End: a.ending, PProf: s.PProf, Log: zap.NewStdLog(a.log.Named("admin")),
			Page:         a.page,
			RetryPercent: admin.RetryPercent{Get: a.proxy.RetryPercent, Set: func(n int) { a.setPercent(n, "asked through the admin listener") }},
		})
	}
	return a, nil
}

func newMetrics() *metrics.Metrics {
	b := build()
	o := metrics.Options{Version: b.Version, Revision: b.Revision}
	for _, r := range http1.AllRefusals() {
		o.Refusals = append(o.Refusals, r.String())
	}
	for i := range upstream.NumDialKinds {
		o.DialErrorKinds = append(o.DialErrorKinds, upstream.DialKind(i).String())
	}
	for f := range forward.DeadlineHeader(forward.NumDeadlineHeaders) {
		o.DeadlineFields = append(o.DeadlineFields, f.String())
	}
	return metrics.New(o)
}

// observe gives what gives each request of the route the counts near to it.
func (a *app) observe(route string) func() proxy.Observer {
	r := a.metrics.Route(route)
	return func() proxy.Observer { return r.Near() }
}

// configure makes the data path's configuration, with observers.
func (a *app) configure(s *settings.Settings) (*proxy.Config, error) {
	c, err := assemble.Config(s)
	if err != nil {
		return nil, err
	}
	c.Observe = a.observe
	c.Refused = func(reason http1.Refusal) { a.metrics.Refused(reason.String()) }
	c.BadDeadline = func(field forward.DeadlineHeader) { a.metrics.BadDeadline(int(field)) }
	if a.page != nil {
		c.Journal = a.page
	}
	if a.fleet != nil {
		a.fleet.attach(c)
	}
	if a.tracer != nil {
		c.Tracer = a.tracer
	}
	c.Log = a.log
	c.InheritedListener = func(address string) net.Listener { return a.systemd.Listen(address) }
	return c, nil
}

func (a *app) ready() error {
	if why := a.phase.Load(); why != nil {
		return errors.New(*why)
	}
	return nil
}

func (a *app) view() any {
	now := a.inForce.Load()
	return viewOf(now.settings, now.problems)
}

// poke leaves a note in a channel with room for one; a second one says nothing
// new.
func poke(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// run serves until ctx ends or a signal says so, then drains. memory is the
// soft memory limit in bytes that was taken from the cgroup, 0 for none.
func (a *app) run(ctx context.Context, signals <-chan os.Signal, memory int64) error {
	if err := a.open(memory); err != nil {
		return a.notListening(err)
	}
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var background sync.WaitGroup
	served, adminEnded := make(chan error, 1), make(chan error, 1)
	background.Go(func() { served <- a.proxy.Serve(working) })
	if a.admin != nil {
		background.Go(func() { adminEnded <- a.admin.Serve() })
		background.Go(func() { a.page.Run(working) })
	}
	background.Go(func() { a.files.Run(working, func() { poke(a.changed) }) })
	if a.fleet != nil {
		background.Go(func() { a.fleet.run(working, a.proxy) })
	}
	a.phase.Store(nil)
	a.notifyReady()

	err := a.work(ctx, signals, served, adminEnded)
	a.closeAdmin()
	stop()
	background.Wait()
	a.endTracing()
	a.log.Info("ended", zap.Error(err))
	return err
}

// open opens the listeners, all or none.
func (a *app) open(memory int64) error {
	now := a.inForce.Load()
	if err := a.listen(now.settings); err != nil {
		return err
	}
	b := build()
	fields := []zap.Field{zap.String("version", b.Version), zap.String("revision", b.Revision), zap.String("position", now.settings.Position)}
	for i, addr := range a.proxy.Addrs() {
		name := "listen"
		if i > 0 {
			name = fmt.Sprintf("listen_%d", i+1)
		}
		fields = append(fields, zap.Stringer(name, addr))
	}
	if a.admin != nil {
		fields = append(fields, zap.Stringer("admin", a.admin.Addr()))
	}
	if memory > 0 {
		fields = append(fields, zap.Int64("memory_limit_bytes", memory))
	}
	a.metrics.ConfigLoaded(true, time.Now())
	a.log.Info("started", fields...)
	logConfig(a.log, now.settings, now.problems)
	a.tellUnreachable(now.settings)
	return nil
}

// startDial bounds the look at the application at the start.
const startDial = 200 * time.Millisecond

// tellUnreachable says at the start that an application on this machine does not
// accept connections yet, and what becomes of requests meanwhile.
func (a *app) tellUnreachable(s *settings.Settings) {
	r := &s.Default
	if !r.Upstream.Loopback() || r.Breaker != "queue" {
		return
	}
	target := r.Upstream.Target()
	if len(target.MoreTargets) > 0 || target.SRV {
		return // another address may
	}
	c, err := net.DialTimeout(target.Network, target.Address, startDial)
	if err == nil {
		_ = c.Close()
		return
	}
	a.log.Info("the upstream does not accept connections yet; requests are queued until it does",
		zap.String("upstream", r.Upstream.String()), zap.Duration("queue_timeout_seconds", r.QueueTimeout), zap.Error(err))
}

// notListening logs each listener that could not be opened, with the variable to
// change, and returns what is left to tell.
func (a *app) notListening(err error) error {
	var several interface{ Unwrap() []error }
	if errors.As(err, &several) {
		var rest []error
		for _, each := range several.Unwrap() {
			rest = append(rest, a.notListening(each))
		}
		return errors.Join(rest...)
	}
	var wrong *proxy.ListenError
	if !errors.As(err, &wrong) {
		return err
	}
	a.log.Error("cannot listen", zap.String("variable", a.inForce.Load().settings.ListenVariable(wrong.Address)), zap.String("address", wrong.Address), zap.Error(wrong.Err))
	return errTold
}

// listen opens every listener, or takes systemd's, or none.
func (a *app) listen(now *settings.Settings) error {
	var err error
	if a.systemd, err = systemd.Take(); err != nil {
		return err
	}
	err = errors.Join(a.proxy.Listen(), a.listenAdmin(now))
	if err == nil {
		err = a.systemd.Rest() // nobody would ever answer there
	}
	a.systemd.Close()
	if err != nil {
		a.abandon()
	}
	return err
}

func (a *app) listenAdmin(now *settings.Settings) error {
	if a.admin == nil {
		return nil
	}
	if given := a.systemd.Listen(now.AdminListen.String()); given != nil {
		a.admin.Use(given)
		return nil
	}
	if err := a.admin.Listen(now.AdminListen.Split()); err != nil {
		return &proxy.ListenError{Address: now.AdminListen.String(), Err: err}
	}
	return nil
}

// abandon closes what listen opened.
func (a *app) abandon() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = a.proxy.Serve(ended) // ends at once
	if a.admin != nil && a.admin.Socket() != nil {
		_ = a.admin.Socket().Close()
	}
}

// notifyReady tells systemd that this process serves.
func (a *app) notifyReady() {
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		a.log.Warn("tell systemd that it started", zap.Error(err))
	}
}

// work is the time between start and end: it waits for whatever happens first.
func (a *app) work(ctx context.Context, signals <-chan os.Signal, served, adminEnded <-chan error) error {
	for {
		select {
		case s := <-signals:
			if isEnd(s) {
				return a.end(s.String(), a.drainDelay(), signals, 1, served)
			}
			if s == syscall.SIGHUP {
				a.reload("SIGHUP")
			}
		case <-a.changed:
			a.reload("a file changed")
		case <-a.drain:
			return a.end("asked through the admin listener", a.drainDelay(), signals, 0, served)
		case <-a.quit:
			return a.end("asked to quit through the admin listener", 0, signals, 0, served)
		case <-ctx.Done():
			return a.end("context ended", a.drainDelay(), signals, 1, served)
		case err := <-served:
			return fmt.Errorf("accepting ended by itself: %w", err)
		case err := <-adminEnded:
			return fmt.Errorf("the admin server ended by itself: %w", err)
		}
	}
}

func (a *app) drainDelay() time.Duration { return a.inForce.Load().settings.DrainDelay }

// end drains: readiness fails at once, requests are taken for the delay, then
// the data path ends what runs. A second signal cuts all of it short; being
// asked to quit, only the delay.
func (a *app) end(why string, delay time.Duration, signals <-chan os.Signal, seen int, served <-chan error) error {
	a.phase.Store(&phaseDraining)
	a.ending.Begin()
	defer a.ending.Drained()
	s := a.inForce.Load().settings
	a.log.Info("draining", zap.String("why", why), zap.Duration("delay_seconds", delay), zap.Duration("timeout_seconds", s.DrainTimeout))
	began := time.Now()
	patience, force := context.WithCancel(context.Background())
	defer force()
	var watching sync.WaitGroup
	done := make(chan struct{})
	watching.Go(func() { a.watchForce(signals, seen, force, done) })

	waited := time.NewTimer(delay)
	select {
	case <-waited.C:
	case <-a.quit:
		waited.Stop()
	case <-patience.Done():
		waited.Stop()
	}
	a.log.Info("ending connections", zap.Duration("after_seconds", time.Since(began)))
	a.drainedBy = time.Now().Add(s.DrainTimeout)
	err := a.proxy.Drain(patience)
	forced := patience.Err() != nil
	close(done)
	watching.Wait()
	if serveErr := <-served; serveErr != nil {
		err = errors.Join(err, serveErr)
	}
	switch {
	case forced:
		a.drainedBy = time.Now()
		a.log.Warn("ended by a second signal; what was in flight was cut off", zap.Duration("duration_seconds", time.Since(began)))
		return errForce
	case errors.Is(err, proxy.ErrDrainTimeout):
		a.log.Warn("not everything ended in time and was cut off", zap.Duration("duration_seconds", time.Since(began)))
		return nil // it did what the setting says
	case err != nil:
		return err
	}
	a.log.Info("drained", zap.Duration("duration_seconds", time.Since(began)))
	return nil
}

// watchForce calls force at the second signal that asks for the end.
func (a *app) watchForce(signals <-chan os.Signal, seen int, force func(), done <-chan struct{}) {
	for {
		select {
		case s := <-signals:
			if !isEnd(s) {
				continue
			}
			if seen++; seen > 1 {
				force()
				return
			}
		case <-done:
			return
		}
	}
}

// adminPatience is for a scrape in flight at the end.
const adminPatience = time.Second

func (a *app) closeAdmin() {
	if a.admin == nil {
		return
	}
	a.page.Close()
	ctx, cancel := context.WithTimeout(context.Background(), adminPatience)
	defer cancel()
	if err := a.admin.Close(ctx); err != nil && !errors.Is(err, http.ErrServerClosed) {
		a.log.Warn("close the admin listener", zap.Error(err))
	}
}
