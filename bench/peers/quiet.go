package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// A proxy with little to do: what it costs where nothing is saved by doing things together.

const (
	pacedRate = 100 // requests a second
	pacedFor  = 10 * time.Second
	restFor   = 20 * time.Second // in which wakeups are counted
)

// paced measures CPU time per request at pacedRate, on one connection.
func (s *stage) paced(r *result) error {
	return s.inTurn(r, func(round int, name string, p *rig.Proxy) error {
		c, err := ask(p.Addr)
		if err != nil {
			return err
		}
		defer c.Close()
		in := bufio.NewReader(c)
		before, err := p.CPU()
		if err != nil {
			return err
		}
		tick := time.NewTicker(time.Second / pacedRate)
		defer tick.Stop()
		n := 0
		for end := time.Now().Add(pacedFor); time.Now().Before(end) && s.ctx.Err() == nil; n++ {
			<-tick.C
			if _, err := io.WriteString(c, "GET /small HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: peers\r\nAccept: */*\r\n\r\n"); err != nil {
				return err
			}
			res, err := http.ReadResponse(in, nil)
			if err != nil {
				return err
			}
			if _, err := io.Copy(io.Discard, res.Body); err != nil {
				return err
			}
		}
		after, err := p.CPU()
		if err == nil && round >= 0 {
			r.add(name, (after-before).Seconds()*1e6/float64(n))
		}
		return err
	})
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
