package rig

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Child is a child process. It is safe for concurrent use.
type Child struct {
	Cmd    *exec.Cmd
	Exited chan struct{} // closed when it has ended
	last   lastLines
}

// Start starts a program that ends with this one. It keeps the last lines of standard error, and of standard
// output if stdout is nil.
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

// Kill kills the process, even a stopped one, and waits for it.
func (c *Child) Kill() {
	_ = c.Cmd.Process.Kill() // it may have ended already
	<-c.Exited
}

// End sends SIGTERM, and SIGKILL after five seconds, and waits for the process. A program with children can
// end them first.
func (c *Child) End() {
	_ = c.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-c.Exited:
	case <-time.After(5 * time.Second):
		c.Kill()
	}
}

// PID returns the process ID.
func (c *Child) PID() int { return c.Cmd.Process.Pid }

// Lines returns the last lines that the process printed.
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

// Ended waits for the end of the process and describes it: "exit status 0" means success.
func (c *Child) Ended(limit time.Duration) string {
	select {
	case <-c.Exited:
		return c.Cmd.ProcessState.String()
	case <-time.After(limit):
		return fmt.Sprintf("still running after %v", limit)
	}
}

// await calls try until it succeeds, ctx or the process ends, or 15 s have passed.
func (c *Child) await(ctx context.Context, try func() error) (err error) {
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end) && ctx.Err() == nil; {
		if err = try(); err == nil {
			return nil
		}
		select {
		case <-c.Exited:
			return errors.New("it ended at once")
		case <-time.After(20 * time.Millisecond):
		}
	}
	return errors.Join(err, ctx.Err())
}

// AwaitPort waits until the process accepts connections at addr.
func (c *Child) AwaitPort(addr string) error {
	return c.await(context.Background(), func() error {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

// FreeAddresses returns n addresses on 127.0.0.1 that were free a moment ago.
func FreeAddresses(n int) []string {
	all, err := freeAddresses("127.0.0.1", n)
	must(err)
	return all
}

// OwnAddresses returns n addresses with a random IP of the loopback network. Other programs do not take their
// ports in the meantime. Only Linux has the whole network.
func OwnAddresses(n int) []string {
	own, err := freeAddresses(fmt.Sprintf("127.%d.%d.%d", 64+rand.N(64), rand.N(256), 1+rand.N(254)), n)
	if err != nil {
		return FreeAddresses(n)
	}
	return own
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

// On Debian, some programs are not in the PATH of users.
func init() { _ = os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin") }

// environ returns an environment without settings of the proxy or the Go runtime.
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

// roleVariable is the environment variable with the role of a process.
const roleVariable = "BENCH_ROLE"

// roles are what the program can be besides the judge.
var roles = map[string]func(args []string) (answer func(order string) (string, error), err error){}

// Role adds a role. serve starts serving and returns answer, which answers the orders of the judge.
func Role(name string, serve func(args []string) (answer func(order string) (string, error), err error)) {
	roles[name] = serve
}

// RunRole runs the role in a process that StartRole started, and does not return there. Tests call it in
// TestMain.
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
	mu     sync.Mutex // held during an order
	orders io.Writer
	out    *os.File
	in     *bufio.Reader
}

// StartRole starts this program in a role and waits until it serves. by is a command line that starts it;
// cores may be nil.
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
