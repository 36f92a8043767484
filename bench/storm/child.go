package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/retryproxy/retryproxy/bench/internal/process"
)

// serverProcess is the server, with what it tells.
type serverProcess struct {
	*process.Child
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
	c, err := process.Start(cmd, write)
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
	s := &serverProcess{Child: c, orders: orders}
	if err := c.AwaitPort(addr); err != nil {
		c.Kill()
		return nil, err
	}
	return s, nil
}

// order sends a line to the server.
func (s *serverProcess) order(line string) error {
	_, err := fmt.Fprintln(s.orders, line)
	return err
}
