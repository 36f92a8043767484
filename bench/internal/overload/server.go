// Package overload is the upstream of storms: a process that becomes slow with many concurrent requests, and
// that can be made to fail. It does not notice that a client has left, so abandoned requests count until they
// are done.
//
// A judge starts it with [Start] and steers it by orders: see [Process.Do].
package overload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
	"github.com/retryproxy/retryproxy/ctl/sim"
)

// Model says how long requests take. Paths that begin with /hang get no response, and those that begin
// with /poll get theirs after 20 s; both are outside of the model.
type Model struct {
	sim.Server
	Cold     int           // the first so many requests of the process
	ColdFor  time.Duration // take so much longer
	CacheFor time.Duration // every path takes this time, after forget once it got a response; 0: no cache
}

// Flat returns a model that takes base for any number of requests, at most workers at a time.
func Flat(base time.Duration, workers int) Model {
	return Model{Server: sim.Server{Base: base, Free: 1 << 30, Look: base, Workers: workers}}
}

// backlog is how many connections the kernel accepts while the server is stopped.
const backlog = 32768

// pollFor is how long a request to /poll takes.
const pollFor = 20 * time.Second

const role = "overloaded server"

func init() { rig.Role(role, serve) }

// Process is a running server.
type Process struct{ *rig.Worker }

// Start starts a server that listens at addr.
func Start(b *rig.Bed, addr string, m Model) (*Process, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	w, err := b.StartRole(role, nil, nil, addr, string(text))
	return &Process{w}, err
}

// Do gives an order:
//
//	load        does nothing
//	200, 503... all responses get this status
//	delay D     all responses take D longer, a duration
//	slower X    the model takes X times as long
//	forget      the cache loses its content
//	rst, fin    connections are reset, or closed, and so are new ones once they are accepted
//	accept      ends that
func (p *Process) Do(order string) error {
	_, err := p.Order("%s", order)
	return err
}

// Load returns the maximum of concurrent requests since the previous order, and the number of requests since
// the start. A stopped server answers later, at most after an hour.
func (p *Process) Load() (most, total int, err error) {
	answer, err := p.Ask("load", time.Hour)
	if err == nil {
		_, err = fmt.Sscan(answer, &most, &total)
	}
	return most, total, err
}

// serve is the role of the server. Its arguments are its address and a Model as JSON.
func serve(args []string) (func(order string) (string, error), error) {
	w := &work{}
	if err := json.Unmarshal([]byte(args[1]), &w.o); err != nil {
		return nil, err
	}
	listeners, err := listenWide(args[0])
	if err != nil {
		return nil, err
	}
	d := &doors{open: map[net.Conn]struct{}{}}
	server := &http.Server{Handler: w, ErrorLog: log.New(io.Discard, "", 0)} // it logs when descriptors run out
	for _, l := range listeners {
		go func() { _ = server.Serve(&door{l, d}) }()
	}
	go func() {
		for range time.Tick(time.Millisecond) {
			w.turn(time.Now())
		}
	}()
	return func(order string) (string, error) {
		err := obey(w, d, order)
		most, total := w.load()
		return fmt.Sprint(most, " ", total), err
	}, nil
}

// obey follows an order.
func obey(w *work, d *doors, order string) error {
	name, value, _ := strings.Cut(order, " ")
	switch name {
	case "load":
	case "delay":
		by, err := time.ParseDuration(value)
		w.change(func() { w.delay = by })
		return err
	case "slower":
		times, err := strconv.ParseFloat(value, 64)
		w.change(func() { w.slower = times })
		return err
	case "forget":
		w.change(func() { w.forgot, w.cached = true, nil })
	case "rst", "fin", "accept":
		d.set(name)
	default:
		status, err := strconv.Atoi(name)
		w.change(func() { w.status = status })
		return err
	}
	return nil
}

// HAProxy returns the configuration of a HAProxy that retries all that it can, in front of servers. more are
// further lines, and limit follows each server's address.
func HAProxy(servers []string, more, limit string) string {
	text := `global
  maxconn 8000
defaults
  mode http
  timeout connect 3s
  timeout client 60s
  timeout server 30s
  timeout http-keep-alive 60s
  retries 3
  option redispatch
  retry-on all-retryable-errors
` + more + `listen storm
  bind {listen}
`
	for i, s := range servers {
		text += fmt.Sprintf("  server s%d %s%s\n", i+1, s, limit)
	}
	return text
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
