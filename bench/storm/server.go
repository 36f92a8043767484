package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
	"github.com/retryproxy/retryproxy/sim"
)

// backlog is how many connections the kernel accepts while the server is stopped.
const backlog = 32768

// need returns how long a request takes while c of them are in progress.
func need(s *sim.Server, c int) time.Duration {
	t := float64(s.Base)
	if c > s.Free {
		t *= math.Pow(s.Factor, float64(c-s.Free)/s.Step)
	}
	return time.Duration(min(t, float64(math.MaxInt64/2)))
}

const roleServer = "storm server"

func init() { rig.Role(roleServer, serve) }

// serve is the role of the server. Its arguments are its address and a sim.Server as JSON. The order
// "503" makes it answer that to everything, "200" ends that, and "load" does nothing. Each answer is
// the most requests in progress at once since the previous order.
func serve(args []string) (func(order string) (string, error), error) {
	w := &work{}
	if err := json.Unmarshal([]byte(args[1]), &w.o); err != nil {
		return nil, err
	}
	// Without a proxy an outage leaves 20 000 connections behind.
	_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 1 << 17, Max: 1 << 17})
	listeners, err := listenWide(args[0])
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: w, ErrorLog: log.New(io.Discard, "", 0)} // it logs when descriptors run out
	for _, l := range listeners {
		go func() { _ = server.Serve(l) }()
	}
	go func() {
		for range time.Tick(time.Millisecond) {
			w.turn(time.Now())
		}
	}()
	return func(order string) (string, error) {
		if order != "load" {
			w.reject.Store(order == "503")
		}
		return strconv.Itoa(w.load()), nil
	}, nil
}

// listenWide opens enough listeners on one port for the kernel to accept backlog connections, whatever the
// system's limit for one listener.
func listenWide(addr string) (all []net.Listener, err error) {
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) { failed = rig.ReusePort(int(fd)) })
		return errors.Join(err, failed)
	}}
	one := 128
	if b, err := os.ReadFile("/proc/sys/net/core/somaxconn"); err == nil {
		one, _ = strconv.Atoi(strings.TrimSpace(string(b)))
	}
	for room := 0; room < backlog; room += max(one, 1) {
		l, err := c.Listen(context.Background(), "tcp", addr)
		if err != nil {
			return nil, err
		}
		addr = l.Addr().String()
		all = append(all, l)
	}
	return all, nil
}

// work is the requests in progress. One goroutine checks those that are due, so that twenty thousand requests
// cost little more than a few.
type work struct {
	o      sim.Server
	reject atomic.Bool // answer 503

	mu   sync.Mutex // guards what follows
	jobs []*job
	most int // at once, since the last load
}

// job is a request.
type job struct {
	began, look time.Time // when it arrived, and when it is checked next
	done        chan int  // the status
}

// begin adds a request.
func (w *work) begin(j *job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	j.began = time.Now()
	w.jobs = append(w.jobs, j)
	w.most = max(w.most, len(w.jobs))
	j.wait(&w.o, len(w.jobs), j.began)
}

// wait schedules the next check of the job: after o.Look, or when it should be done if that is sooner.
func (j *job) wait(o *sim.Server, atOnce int, now time.Time) {
	j.look = now.Add(min(need(o, atOnce)-now.Sub(j.began), o.Look))
}

// turn checks all jobs that are due.
func (w *work) turn(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	status := 200
	if w.reject.Load() {
		status = 503
	}
	atOnce, kept := len(w.jobs), w.jobs[:0]
	for _, j := range w.jobs {
		switch {
		case now.Before(j.look):
		case now.Sub(j.began) < need(&w.o, atOnce):
			j.wait(&w.o, atOnce, now)
		default:
			atOnce--
			j.done <- status
			continue
		}
		kept = append(kept, j)
	}
	clear(w.jobs[len(kept):])
	w.jobs = kept
}

// load returns the maximum of concurrent requests since the previous call.
func (w *work) load() (most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	most, w.most = w.most, len(w.jobs)
	return most
}

// ServeHTTP responds when the work is done, even if the client has left.
func (w *work) ServeHTTP(rw http.ResponseWriter, _ *http.Request) {
	j := &job{done: make(chan int, 1)}
	w.begin(j)
	rw.WriteHeader(<-j.done)
	_, _ = io.WriteString(rw, "done\n")
}
