package rig

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Child is a process that this one started and will end. It is safe for concurrent use.
type Child struct {
	Cmd    *exec.Cmd
	Exited chan struct{} // closed when it has ended
	last   lastLines
}

// Start starts a program that ends with this one. The last lines of its standard error are kept; if
// stdout is nil, those of its standard output too.
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
	go func() { defer close(c.Exited); _ = cmd.Wait() }() // Ended tells how
	return c, nil
}

// Signal sends the process a signal.
func (c *Child) Signal(s syscall.Signal) error { return c.Cmd.Process.Signal(s) }

// Kill ends the process, also a stopped one, and waits for it.
func (c *Child) Kill() {
	_ = c.Cmd.Process.Kill() // it may have ended already
	<-c.Exited
}

// End asks the process to end, kills it after five seconds, and waits for it. Programs with children
// end those first.
func (c *Child) End() {
	_ = c.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-c.Exited:
	case <-time.After(5 * time.Second):
		c.Kill()
	}
}

// PID is the process's number.
func (c *Child) PID() int { return c.Cmd.Process.Pid }

// Lines is the last of what the process printed.
func (c *Child) Lines() string { return strings.TrimSpace(c.last.String()) }

// Alive returns an error if the process has ended.
func (c *Child) Alive() error {
	select {
	case <-c.Exited:
		return fmt.Errorf("%s ended in the middle of the run; it said:\n%s", c.Cmd.Path, c.Lines())
	default:
		return nil
	}
}

// Ended waits for the process to end and tells how: "exit status 0" if all is well.
func (c *Child) Ended(limit time.Duration) string {
	select {
	case <-c.Exited:
		return c.Cmd.ProcessState.String()
	case <-time.After(limit):
		return fmt.Sprintf("still running after %v", limit)
	}
}

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

// FreeAddresses are n on 127.0.0.1 on which nobody listened a moment ago.
func FreeAddresses(n int) ([]string, error) { return freeAddresses("127.0.0.1", n) }

// OwnAddresses are n on a random address of the loopback network: no connection of another program
// takes one of their ports before they are listened on. Only Linux has that network as a whole.
func OwnAddresses(n int) ([]string, error) {
	own, err := freeAddresses(fmt.Sprintf("127.%d.%d.%d", 64+rand.N(64), rand.N(256), 1+rand.N(254)), n)
	if err != nil {
		return FreeAddresses(n)
	}
	return own, nil
}

func freeAddresses(ip string, n int) (all []string, err error) {
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

// Debian has some programs where users have no path.
func init() { _ = os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin") }

// environ is the environment of all programs: no setting of the proxy or the Go runtime.
func environ(more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, more...)
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
	if l.text = append(l.text, p...); len(l.text) > 2*most {
		l.text = append(l.text[:0], l.text[len(l.text)-most:]...)
	}
	return len(p), nil
}

func (l *lastLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}
