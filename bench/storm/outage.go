package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/overload"
	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// stage is a run in progress.
type stage struct {
	rig.Bed
	o       *options
	way     string
	addr    string // of the server
	proxies []*rig.Proxy

	line   *rig.Timeline
	server atomic.Pointer[overload.Process]

	stopped, resumed time.Duration // when the outage began and ended
}

// atServer counts the maximum of concurrent requests that the server reports.
const atServer = "server at once"

// play plays one run. It fails if ctx ends.
func play(ctx context.Context, way string, o *options, progress *log.Logger) (*runResult, error) {
	s := &stage{o: o, way: way, addr: rig.OwnAddresses(1)[0], line: rig.NewTimeline()}
	defer s.End()
	if err := errors.Join(s.startServer(), s.startProxies(ctx)); err != nil {
		return nil, err
	}
	addrs := rig.Addrs(s.proxies)
	if len(addrs) == 0 {
		addrs = []string{s.addr}
	}
	s.line.Begin()
	run, stop := context.WithTimeout(ctx, o.storm.Length)
	defer stop()
	clients := o.crowd().Run(run, addrs, s.line)
	var others sync.WaitGroup
	others.Go(func() { s.askServer(run) })
	others.Go(func() {
		for n := time.Second; s.line.Until(run, n); n += time.Second {
			progress.Printf("%s", s.second(n))
		}
	})
	err := s.outage(run)
	if err == nil {
		<-run.Done()
	}
	for _, p := range s.proxies {
		err = errors.Join(err, p.Alive())
	}
	stop()
	clients.Wait()
	s.server.Load().Kill() // it may be stopped
	others.Wait()
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	return newRunResult(s), nil
}

func (s *stage) startServer() error {
	w, err := overload.Start(&s.Bed, s.addr, overload.Model{Server: s.o.storm.Server})
	s.server.Store(w)
	return err
}

// startProxies starts the proxies of the way, with default settings.
func (s *stage) startProxies(ctx context.Context) (err error) {
	switch s.way {
	case "direct":
	case "retryproxy":
		s.proxies, err = s.StartMany(ctx, rig.Spec{Program: s.o.proxy, Upstream: "http://" + s.addr}, s.o.storm.Proxies)
	default:
		var p *rig.Proxy
		p, err = s.StartPeer(rig.Peer{Program: "haproxy", Args: []string{"-db", "-q", "-f"}, Config: haproxyConfig(s.way, s.o)}, s.addr, nil)
		s.proxies = []*rig.Proxy{p}
	}
	return err
}

// haproxyConfig returns the configuration of a way. haproxy-retry retries all that HAProxy can retry.
// haproxy-tuned also has a limit that fits the server.
func haproxyConfig(way string, o *options) string {
	more, limit := "", ""
	if o.abort {
		more = "  option abortonclose\n"
	}
	if way == "haproxy-tuned" {
		more += fmt.Sprintf("  timeout queue %dms\n", o.storm.SlotFor.Milliseconds())
		limit = fmt.Sprintf(" maxconn %d", o.storm.Slots)
	}
	return overload.HAProxy([]string{"{upstream}"}, more, limit)
}

// outage waits for its time, begins it and ends it.
func (s *stage) outage(ctx context.Context) error {
	begin, end := s.o.outageAt()
	if !s.line.Until(ctx, begin) {
		return ctx.Err()
	}
	s.stopped = s.line.Since()
	if err := s.begin(); err != nil {
		return err
	}
	down := s.line.Until(ctx, end)
	if err := s.resume(); err != nil {
		return fmt.Errorf("end of the outage: %w", err)
	}
	if s.resumed = s.line.Since(); !down {
		return ctx.Err()
	}
	return nil
}

func (s *stage) begin() (err error) {
	switch s.o.outage {
	case "kill":
		s.server.Load().Kill()
	case "503":
		err = s.server.Load().Do("503")
	default:
		err = s.server.Load().Signal(syscall.SIGSTOP)
	}
	return err
}

func (s *stage) resume() (err error) {
	switch s.o.outage {
	case "kill":
		return s.startServer()
	case "503":
		err = s.server.Load().Do("200")
	default:
		err = s.server.Load().Signal(syscall.SIGCONT)
	}
	return err
}

// askServer asks for the server's load until ctx ends. A stopped server answers later.
func (s *stage) askServer(ctx context.Context) {
	for rig.Sleep(ctx, rig.Tick) {
		if most, _, err := s.server.Load().Load(); err == nil {
			s.line.Count(atServer, most)
		}
	}
}

// second describes the second that ends at at.
func (s *stage) second(at time.Duration) string {
	phase := "after"
	if begin, end := s.o.outageAt(); at <= begin {
		phase = "peace"
	} else if at <= end {
		phase = "down"
	}
	t := s.line.Sum(at-time.Second, at)
	return fmt.Sprintf("%s  %3ds %-5s good %4d  bad %4d  late %4d  server %5d", s.way, at/time.Second, phase, t[rig.Good], t.Kinds(rig.Bad), t[rig.Late], t[atServer])
}
