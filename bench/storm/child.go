package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// child is a process that this one started and will end.
type child struct {
	cmd    *exec.Cmd
	exited chan struct{}
	last   lastLines
}

// start starts a program. Its standard error is kept, the last lines of it;
// stdout nil: its standard output as well.
func start(cmd *exec.Cmd, stdout io.Writer) (*child, error) {
	c := &child{cmd: cmd, exited: make(chan struct{})}
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
		close(c.exited)
	}()
	return c, nil
}

func (c *child) signal(s syscall.Signal) error { return c.cmd.Process.Signal(s) }

// kill ends the process, one that is stopped too, and waits for it.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may have ended already
	<-c.exited
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

// serverProcess is the server, with what it tells.
type serverProcess struct {
	*child
	orders io.WriteCloser
}

// startServer starts this program again in the role of the server.
func startServer(o *serverOptions, addr string, tell func(now, most int)) (*serverProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, append([]string{roleServer, "--listen", addr}, o.args()...)...)
	cmd.Env = append(os.Environ(), roleVariable+"="+roleServer)
	orders, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	read, write := io.Pipe()
	c, err := start(cmd, write)
	if err != nil {
		return nil, err
	}
	go func() {
		for sc := bufio.NewScanner(read); sc.Scan(); {
			var now, most, answered int
			if n, _ := fmt.Sscan(sc.Text(), &now, &most, &answered); n == 3 {
				tell(now, most)
			}
		}
		_ = read.Close()
	}()
	s := &serverProcess{child: c, orders: orders}
	if err := awaitPort(addr, c); err != nil {
		c.kill()
		return nil, err
	}
	return s, nil
}

// order sends a line to the server.
func (s *serverProcess) order(line string) error {
	_, err := fmt.Fprintln(s.orders, line)
	return err
}

// lines is what a process said last, for an error.
func (c *child) lines() string { return strings.TrimSpace(c.last.String()) }
