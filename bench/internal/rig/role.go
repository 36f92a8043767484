package rig

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// roleVariable names the role of a process that a judge started from its own program.
const roleVariable = "BENCH_ROLE"

// roles are what the running program can be besides the judge.
var roles = map[string]func(args []string) (answer func(order string) (string, error), err error){}

// Role adds a role. serve starts to serve args and returns; answer then answers each order of the judge.
func Role(name string, serve func(args []string) (answer func(order string) (string, error), err error)) {
	roles[name] = serve
}

// RunRole does not return in a process that StartRole started. Tests call it in TestMain.
func RunRole() {
	serve := roles[os.Getenv(roleVariable)]
	if serve == nil {
		return
	}
	answer, err := serve(os.Args[1:])
	reply := ""
	for in := bufio.NewScanner(os.Stdin); err == nil; {
		fmt.Println(reply)
		if !in.Scan() {
			os.Exit(OK)
		}
		if reply, err = answer(in.Text()); err != nil {
			err = fmt.Errorf("order %q: %w", in.Text(), err)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(Failed)
}

// Worker is a process in a role.
type Worker struct {
	*Child
	mu     sync.Mutex // one order at a time
	orders io.Writer
	out    *os.File
	in     *bufio.Reader
}

// StartRole starts this program again in a role, by way of the command line by, on some cores (nil:
// any), and waits until it serves.
func (b *Bed) StartRole(role string, by []string, cores []int, args ...string) (*Worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	line := slices.Concat(by, []string{self}, args)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	orders, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	b.Later(func() { _ = read.Close() })
	defer write.Close()
	w := &Worker{orders: orders, out: read, in: bufio.NewReader(read)}
	err = pinned(cores, func() (err error) { w.Child, err = Start(cmd, write); return err })
	if err != nil {
		return nil, err
	}
	b.Later(w.Kill)
	_, err = w.read(15 * time.Second)
	return w, err
}

// Order sends an order and returns the answer.
func (w *Worker) Order(format string, a ...any) (string, error) {
	return w.Ask(fmt.Sprintf(format, a...), 15*time.Second)
}

// Ask is Order with a limit for the answer.
func (w *Worker) Ask(order string, limit time.Duration) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := fmt.Fprintln(w.orders, order); err != nil {
		return "", err
	}
	answer, err := w.read(limit)
	if err != nil {
		err = fmt.Errorf("order %q: %w", order, err)
	}
	return answer, err
}

func (w *Worker) read(limit time.Duration) (string, error) {
	_ = w.out.SetReadDeadline(time.Now().Add(limit))
	line, err := w.in.ReadString('\n')
	if err != nil {
		err = errors.Join(fmt.Errorf("no answer: %w", err), errors.New(w.Lines()))
	}
	return strings.TrimSuffix(line, "\n"), err
}
