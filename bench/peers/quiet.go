package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// A proxy with little to do: what it costs where nothing is saved by doing things together.

const (
	pacedRate    = 100              // requests a second to each proxy
	pacedSeconds = 10               // of a round
	restFor      = 20 * time.Second // in which wakeups are counted
)

// paced measures CPU time per request at pacedRate, on one connection. Every round starts the proxies anew, because
// where the system puts their memory changes the figure by up to 5 %. Within a round they get their requests in turn,
// in random order, so that all find the caches and the machine in the same state.
func (s *stage) paced(r *result) error {
	for round := range s.rounds {
		if err := s.pacedRound(r); err != nil {
			return err
		}
		s.progress.Printf("%s: round %d of %d: %s", r.Case, round+1, s.rounds, r.last())
	}
	return nil
}

func (s *stage) pacedRound(r *result) error {
	var b rig.Bed
	defer b.End()
	var all []*pacedProxy
	for _, name := range s.proxies() {
		p, err := s.proxyOn(&b, name, s.cores.One)
		if err != nil {
			return err
		}
		c, err := ask(p.Addr)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		defer c.Close()
		all = append(all, &pacedProxy{Proxy: p, name: name, conn: c, in: bufio.NewReader(c)})
	}
	if err := s.pace(all, pacedRate); err != nil { // opens connections and fills buffers
		return err
	}
	for _, p := range all {
		var err error
		if p.before, err = p.CPU(); err != nil {
			return err
		}
	}
	const each = pacedRate * pacedSeconds
	if err := s.pace(all, each); err != nil {
		return err
	}
	for _, p := range all {
		after, err := p.CPU()
		if err != nil {
			return err
		}
		r.add(p.name, (after-p.before).Seconds()*1e6/each)
	}
	return nil
}

// pace sends n requests to each proxy at pacedRate.
func (s *stage) pace(all []*pacedProxy, n int) error {
	tick := time.NewTicker(time.Second / time.Duration(pacedRate*len(all)))
	defer tick.Stop()
	for range n {
		for _, i := range rand.Perm(len(all)) {
			<-tick.C
			if err := errors.Join(all[i].get(), s.ctx.Err()); err != nil {
				return fmt.Errorf("%s: %w", all[i].name, err)
			}
		}
	}
	return nil
}

// pacedProxy is a proxy with the connection of its client.
type pacedProxy struct {
	*rig.Proxy
	name   string
	conn   net.Conn
	in     *bufio.Reader
	before time.Duration // CPU time before the first request that counts
}

// get sends a request and reads its response.
func (p *pacedProxy) get() error {
	if _, err := io.WriteString(p.conn, "GET /small HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: peers\r\nAccept: */*\r\n\r\n"); err != nil {
		return err
	}
	return readOK(p.in)
}

// wakeups counts the voluntary context switches a second of a proxy that has served a request.
func wakeups(s *stage, p *rig.Proxy) (float64, error) {
	if _, err := s.atRest(p); err != nil {
		return 0, err
	}
	before, err := switches(p.PID())
	if err != nil {
		return 0, err
	}
	rig.Sleep(s.ctx, restFor)
	after, err := switches(p.PID())
	return float64(after-before) / restFor.Seconds(), err
}

// switches returns the voluntary context switches of all threads of a process and its children.
func switches(pid int) (sum int, err error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		return 0, err
	}
	for _, task := range tasks {
		b, err := os.ReadFile(task + "/status")
		if err != nil {
			continue // the thread has ended
		}
		_, rest, _ := strings.Cut(string(b), "\nvoluntary_ctxt_switches:")
		number, _, _ := strings.Cut(rest, "\n")
		n, err := strconv.Atoi(strings.TrimSpace(number))
		if err != nil {
			return 0, fmt.Errorf("%s: %w", task, err)
		}
		sum += n
		children, _ := os.ReadFile(task + "/children")
		for _, f := range strings.Fields(string(children)) {
			child, _ := strconv.Atoi(f)
			n, err := switches(child)
			if err != nil {
				return 0, err
			}
			sum += n
		}
	}
	return sum, nil
}
