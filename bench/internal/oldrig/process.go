package oldrig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/retryproxy/retryproxy/bench/internal/process"
)

// Process is a program that listens, pinned to cores.
type Process struct {
	*process.Child
	Addr  string
	Admin string // of those that StartMany started
	dir   string // removed at the end
}

// command is a program to start.
type command struct {
	path    string
	args    []string
	by      []string // a command line before it
	environ []string
	cores   []int // nil: any
	dir     string
}

// startListening starts a program on a free address and waits until it accepts.
func startListening(how func(addr string) (*command, error)) (*Process, error) {
	free, err := process.FreeAddresses(1)
	if err != nil {
		return nil, err
	}
	c, err := how(free[0])
	if err != nil {
		return nil, err
	}
	return c.listen(free[0], "")
}

// listen starts the program and waits until it accepts at addr, and at admin if that is not "".
func (c *command) listen(addr, admin string) (*Process, error) {
	p, err := c.start()
	if err != nil {
		return nil, err
	}
	p.Addr, p.Admin = addr, admin
	err = p.AwaitPort(addr)
	if err == nil && admin != "" {
		err = p.AwaitPort(admin)
	}
	if err != nil {
		p.End()
		return nil, fmt.Errorf("%s: %w; it said:\n%s", c.path, err, p.Lines())
	}
	return p, nil
}

func (c *command) start() (*Process, error) {
	line := slices.Concat(c.by, []string{c.path}, c.args)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = c.environ
	var child *process.Child
	err := pinned(c.cores, func() (err error) {
		child, err = process.Start(cmd, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &Process{Child: child, dir: c.dir}, nil
}

// End ends the process.
func (p *Process) End() {
	p.Child.End()
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
}

// Alive is an error when the process has ended.
func (p *Process) Alive() error {
	select {
	case <-p.Exited:
		return fmt.Errorf("%s ended in the middle of the run; it said:\n%s", p.Cmd.Path, p.Lines())
	default:
		return nil
	}
}

// Cost sends load, which is to go to p, and gives the CPU time of p for each
// request in microseconds, with what was sent. An error says that p ended, that wrk
// failed, or that nothing was answered.
func (p *Process) Cost(ctx context.Context, load *Load) (float64, *Result, error) {
	before, err := p.CPU()
	if err != nil {
		return 0, nil, errors.Join(err, p.Alive())
	}
	sent, err := load.Send(ctx)
	if err != nil {
		return 0, nil, err
	}
	after, err := p.CPU()
	if err != nil {
		return 0, nil, errors.Join(err, p.Alive())
	}
	if sent.Requests == 0 {
		return 0, nil, errors.New("no request was answered")
	}
	return (after - before).Seconds() * 1e6 / float64(sent.Requests), sent, p.Alive()
}

// cleanEnviron is the environment without settings of the proxy or the Go runtime.
func cleanEnviron() []string {
	var kept []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "RETRYPROXY_") && !strings.HasPrefix(e, "GOMAXPROCS=") && !strings.HasPrefix(e, "GOGC=") && !strings.HasPrefix(e, "GOMEMLIMIT=") {
			kept = append(kept, e)
		}
	}
	return kept
}
