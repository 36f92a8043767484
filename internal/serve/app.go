// Package serve runs the serving process: the data path, the admin listener, and reloads of
// the settings.
//
// Call Run. It reads the settings, opens the listeners, serves until its context ends or a
// signal arrives, and drains.
package serve

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/internal/admin"
	"github.com/retryproxy/retryproxy/internal/admin/page"
	"github.com/retryproxy/retryproxy/internal/buildinfo"
	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/filewatch"
	"github.com/retryproxy/retryproxy/internal/systemd"
	"github.com/retryproxy/retryproxy/internal/terminal"
	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// app is a serving process: the data path, the admin server, and reloads of the settings.
// Call newApp, then run once.
type app struct {
	options *Options
	log     *zap.Logger
	metrics *metrics.Metrics
	proxy   *proxy.Server
	admin   *admin.Server // nil if it is off
	page    *page.Page    // likewise
	fleet   sharer        // nil if nothing is shared
	tracer  tracer        // nil if no spans are made
	files   *filewatch.Files
	inForce atomic.Pointer[inForce]
	phase   atomic.Pointer[string] // why it is not ready; nil if it is
	drain   chan struct{}          // a drain was requested through the admin server; capacity one
	quit    chan struct{}          // an immediate end was requested; capacity one
	changed chan struct{}          // a file changed; capacity one

	ending    *admin.End
	drainedBy time.Time // when the drain's time ends; zero before it starts

	systemd *systemd.Sockets // the sockets passed by systemd

	checkFor time.Duration // how long an upstream may take at start to show what it speaks; 0: as usual
}

// inForce is the version of the configuration in force.
type inForce struct {
	settings *config.Settings
	problems config.Problems
	config   *proxy.Config
	rules    sync.Map // page.Rule by route, made when it is first shown
}

var (
	phaseStarting = "starting"
	phaseDraining = "draining"
)

// newApp builds everything and opens nothing. Its errors are problems of the settings, such as
// unreadable certificates.
func newApp(o *Options, s *config.Settings, problems config.Problems) (*app, error) {
	a := &app{
		options: o, log: newLogger(o.Log, terminal.Is(o.Log), levelOf(s)), metrics: NewMetrics(o.Build),
		drain: make(chan struct{}, 1), quit: make(chan struct{}, 1), changed: make(chan struct{}, 1), systemd: &systemd.Sockets{},
		ending: admin.NewEnd(),
	}
	o.Log.ReportDropped(droppedLine(terminal.Is(o.Log)))
	a.files = filewatch.New(s.Files()...)
	a.phase.Store(&phaseStarting)
	if !s.AdminListen.Off() {
		a.page = a.newPage(s)
	}
	var err error
	if a.fleet, err = newFleet(s, a.log); err != nil {
		return nil, fmt.Errorf("%sSHARED: %w", config.Prefix, err)
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
	a.inForce.Store(&inForce{settings: s, problems: problems, config: c})
	a.metrics.Watch(a.snapshot)
	if !s.AdminListen.Off() {
		a.admin = a.newAdmin(s)
	}
	return a, nil
}

// NewMetrics returns metrics with all labels of the data path.
func NewMetrics(b buildinfo.Build) *metrics.Metrics {
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

// observe returns the function that returns the Observer for each request of the route.
func (a *app) observe(route string) func() proxy.Observer {
	r := a.metrics.Route(route)
	return func() proxy.Observer { return r.Near() }
}

// configure returns the data path's configuration, with observers.
func (a *app) configure(s *config.Settings) (*proxy.Config, error) {
	c, err := config.Build(s)
	if err != nil {
		return nil, err
	}
	c.Observe = a.observe
	c.Refused = func(reason http1.Refusal) { a.metrics.Refused(int(reason - 1)) } // the labels leave out RefusalNone
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

// notify sends to a channel of capacity one, without blocking.
func notify(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// run serves until ctx ends or a signal arrives, then drains. memory is the soft memory
// limit in bytes that was derived from the cgroup, 0 for none.
func (a *app) run(ctx context.Context, signals <-chan os.Signal, memory int64) error {
	if err := a.open(memory); err != nil {
		return a.logListenErrors(err)
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
	background.Go(func() { a.checkUpstreams(working, a.inForce.Load().settings, a.inForce.Load().config) })
	background.Go(func() { a.files.Run(working, func() { notify(a.changed) }) })
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

// notifyReady tells systemd that this process is ready.
func (a *app) notifyReady() {
	if err := systemd.Notify(os.Getenv("NOTIFY_SOCKET"), "READY=1"); err != nil {
		a.log.Warn("systemd could not be notified of the start", zap.Error(err))
	}
}
