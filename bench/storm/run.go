package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/process"
)

// stage is one run: the server, what stands before it, the clients.
type stage struct {
	o      *options
	addr   string
	server *serverProcess
	record *record
	load   atomic.Int64 // requests at the server, as it said last

	stopped, resumed time.Duration // when the outage began and ended
}

// play plays one run. A run cut short by ctx is an error.
func play(ctx context.Context, way string, o *options, seed uint64, told *progress) (*runResult, error) {
	free, err := process.FreeAddresses(1)
	if err != nil {
		return nil, err
	}
	s := &stage{o: o, addr: free[0], record: newRecord(o.length())}
	if err := s.startServer(); err != nil {
		return nil, err
	}
	defer func() { s.server.Kill() }()
	b, err := startBetween(way, o, s.addr)
	if err != nil {
		return nil, err
	}
	defer b.end()
	if err := s.storm(ctx, b, seed, told); err != nil {
		return nil, err
	}
	s.record.end()
	return newRunResult(way, s, seed), nil
}

func (s *stage) startServer() error {
	server, err := startServer(&s.o.server, s.addr, func(now, most int) {
		s.load.Store(int64(now))
		s.record.atOnce(most)
	})
	if err == nil {
		s.server = server
	}
	return err
}

// storm runs the clients and what happens to the server.
func (s *stage) storm(ctx context.Context, b *between, seed uint64, told *progress) error {
	s.record.begin()
	run, stop := context.WithTimeout(ctx, s.o.length())
	defer stop()
	clients := runClients(run, &s.o.clients, b.addrs, seed, s.record)
	var others sync.WaitGroup
	others.Go(func() { follow(run, b.admins, s.o.sample, s.record) })
	others.Go(func() { told.follow(run, s) })
	err := s.outage(run)
	if err == nil {
		<-run.Done()
		err = b.alive()
	}
	stop()
	clients.Wait()
	others.Wait()
	if err == nil {
		err = ctx.Err()
	}
	return err
}

// outage waits for its time, makes it and ends it.
func (s *stage) outage(ctx context.Context) error {
	if !s.wait(ctx, s.o.peace) {
		return ctx.Err()
	}
	s.stopped = s.record.happened("outage: " + s.o.outage)
	if err := s.begin(); err != nil {
		return err
	}
	down := s.wait(ctx, s.o.peace+s.o.down)
	if err := s.resume(); err != nil {
		return fmt.Errorf("end of the outage: %w", err)
	}
	s.resumed = s.record.happened("outage ends")
	if !down {
		return ctx.Err()
	}
	return nil
}

func (s *stage) begin() error {
	switch s.o.outage {
	case "kill":
		s.server.Kill()
		s.load.Store(0)
		return nil
	case "503":
		return s.server.order("503")
	}
	return s.server.Signal(syscall.SIGSTOP)
}

func (s *stage) resume() error {
	switch s.o.outage {
	case "kill":
		return s.startServer()
	case "503":
		return s.server.order("200")
	}
	return s.server.Signal(syscall.SIGCONT)
}

// wait waits for a time since the beginning.
func (s *stage) wait(ctx context.Context, until time.Duration) bool {
	select {
	case <-time.After(until - s.record.since()):
		return true
	case <-ctx.Done():
		return false
	}
}
