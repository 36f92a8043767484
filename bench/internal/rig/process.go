package rig

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/retryproxy/retryproxy/bench/internal/process"
)

// Process is a program that listens, pinned to cores.
type Process struct {
	*process.Child
	Addr string
	dir  string // removed at the end
}

// command is a program to start.
type command struct {
	path    string
	args    []string
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
	p, err := c.start()
	if err != nil {
		return nil, err
	}
	p.Addr = free[0]
	if err := p.AwaitPort(p.Addr); err != nil {
		p.End()
		return nil, fmt.Errorf("%s: %w; it said:\n%s", c.path, err, p.Lines())
	}
	return p, nil
}

func (c *command) start() (*Process, error) {
	cmd := exec.Command(c.path, c.args...)
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
