//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/process"
)

// child is this program in another role, and what it answers to orders.
type child struct {
	*process.Child
	orders  io.WriteCloser
	answers chan string
}

// answerTime is what an order may take.
const answerTime = 15 * time.Second

// startRole starts this program in another role and waits until it says that it is
// open; cmd nil: as it is, else by way of another command.
func startRole(role string, by []string, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	line := append(append([]string{}, by...), append([]string{self}, args...)...)
	return openRole(role, exec.Command(line[0], line[1:]...))
}

func openRole(role string, cmd *exec.Cmd) (*child, error) {
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	orders, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	read, write := io.Pipe()
	c := &child{orders: orders, answers: make(chan string, 1)}
	if c.Child, err = process.Start(cmd, write); err != nil {
		return nil, err
	}
	go func() {
		defer close(c.answers)
		for sc := bufio.NewScanner(read); sc.Scan(); {
			c.answers <- sc.Text()
		}
	}()
	go func() { <-c.Exited; _ = write.Close() }()
	if _, err := c.answer("open"); err != nil {
		c.Kill()
		return nil, fmt.Errorf("%s: %w; it said:\n%s", role, err, c.Lines())
	}
	return c, nil
}

func (c *child) answer(want string) (string, error) {
	select {
	case line, ok := <-c.answers:
		if rest, right := strings.CutPrefix(line, want); ok && right {
			return strings.TrimSpace(rest), nil
		}
		return "", fmt.Errorf("it said %q instead of %q: %s", line, want, c.Lines())
	case <-time.After(answerTime):
		return "", errors.New("it does not answer")
	}
}

// order gives an order and gives the number that is the response.
func (c *child) order(line string) (int64, error) {
	if _, err := fmt.Fprintln(c.orders, line); err != nil {
		return 0, err
	}
	text, err := c.answer("done")
	if err != nil {
		return 0, fmt.Errorf("order %q: %w", line, err)
	}
	return strconv.ParseInt(text, 10, 64)
}
