// Package process starts the programs of a benchmark and ends them again: none
// outlives the one that started it.
package process

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Child is a process that this one started and will end. Its methods are safe
// for concurrent use.
type Child struct {
	Cmd    *exec.Cmd
	Exited chan struct{} // closed when it has ended
	last   lastLines
}

// Start starts a program. Its standard error is kept, the last lines of it;
// stdout nil: its standard output as well.
func Start(cmd *exec.Cmd, stdout io.Writer) (*Child, error) {
	c := &Child{Cmd: cmd, Exited: make(chan struct{})}
	endWithParent(cmd)
	cmd.Stderr = &c.last
	if cmd.Stdout = stdout; stdout == nil {
		cmd.Stdout = &c.last
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	go func() {
		_ = cmd.Wait() // how it ended is its own affair; whoever needed it says so
		close(c.Exited)
	}()
	return c, nil
}

// Signal sends the process a signal.
func (c *Child) Signal(s syscall.Signal) error { return c.Cmd.Process.Signal(s) }

// Kill ends the process, one that is stopped too, and waits for it.
func (c *Child) Kill() {
	_ = c.Cmd.Process.Kill() // it may have ended already
	<-c.Exited
}

// endTime is how long End waits before it kills.
const endTime = 5 * time.Second

// End asks the process to end, kills it where it does not, and waits for it.
// Programs with children of their own end those first.
func (c *Child) End() {
	_ = c.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-c.Exited:
	case <-time.After(endTime):
		c.Kill()
	}
}

// PID is the process's number.
func (c *Child) PID() int { return c.Cmd.Process.Pid }

// Lines is what the process said last, for an error.
func (c *Child) Lines() string { return strings.TrimSpace(c.last.String()) }

// AwaitPort waits until the process accepts connections at addr.
func (c *Child) AwaitPort(addr string) error {
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-c.Exited:
			return errors.New("it ended at once")
		case <-time.After(20 * time.Millisecond):
		}
	}
	return errors.New("it does not accept connections after 15 s")
}

// FreeAddresses are n of loopback that nobody listened on a moment ago.
func FreeAddresses(n int) ([]string, error) { return freeAddresses("127.0.0.1", n) }

// OwnAddresses are n on an address of the loopback network that is hardly
// anybody else's: no connection of another program takes one of their ports as its
// own end before they are listened on. Only Linux has that network as a whole.
func OwnAddresses(n int) ([]string, error) {
	return freeAddresses(fmt.Sprintf("127.%d.%d.%d", 64+rand.N(64), rand.N(256), 1+rand.N(254)), n)
}

func freeAddresses(ip string, n int) ([]string, error) {
	var all []string
	for range n {
		l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
		if err != nil {
			return nil, err
		}
		defer l.Close()
		all = append(all, l.Addr().String())
	}
	return all, nil
}

// lastLines keeps the end of what is written to it.
type lastLines struct {
	mu   sync.Mutex
	text []byte
}

func (l *lastLines) Write(p []byte) (int, error) {
	const most = 8 << 10
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	if len(l.text) > 2*most {
		l.text = append(l.text[:0], l.text[len(l.text)-most:]...)
	}
	return len(p), nil
}

func (l *lastLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}
