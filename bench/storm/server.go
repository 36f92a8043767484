package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// serverOptions are the constants of the server.
type serverOptions struct {
	base    time.Duration // time of a response while at most free requests are there
	free    int
	factor  float64       // above that base * factor^((c-free)/step)
	step    float64       //
	look    time.Duration // how often c is looked at while a request waits
	report  time.Duration // how often the number of requests is told
	backlog int           // connections that the kernel accepts while the process does not
}

func (s *serverOptions) flags(f *flag.FlagSet) {
	f.DurationVar(&s.base, "base", 100*time.Millisecond, "server: time of a response while few requests are there")
	f.IntVar(&s.free, "free", 30, "server: requests at once that are few")
	f.Float64Var(&s.factor, "factor", 1.05, "server: above them, a response takes this many times longer...")
	f.Float64Var(&s.step, "step", 15, "server: ...for each so many requests more")
	f.DurationVar(&s.look, "look", 50*time.Millisecond, "server: how often a waiting request looks how many there are")
	f.DurationVar(&s.report, "report", 100*time.Millisecond, "server: how often the requests at once are told")
	f.IntVar(&s.backlog, "backlog", 32768, "server: connections that the kernel accepts while the server is stopped")
}

// args are the flags that give these options.
func (s *serverOptions) args() []string {
	return []string{
		"--base", s.base.String(), "--free", strconv.Itoa(s.free),
		"--factor", strconv.FormatFloat(s.factor, 'g', -1, 64), "--step", strconv.FormatFloat(s.step, 'g', -1, 64),
		"--look", s.look.String(), "--report", s.report.String(), "--backlog", strconv.Itoa(s.backlog),
	}
}

func (s *serverOptions) validate() error {
	switch {
	case s.base < time.Millisecond || s.look < time.Millisecond || s.report < 10*time.Millisecond:
		return errors.New("--base and --look must be at least 1ms, --report 10ms")
	case s.free < 0 || s.factor < 1 || s.factor > 100 || s.step <= 0 || math.IsNaN(s.factor+s.step):
		return errors.New("--free must not be negative, --factor in 1..100, --step positive")
	case s.backlog < 1 || s.backlog > 1<<17:
		return errors.New("--backlog must be in 1..131072")
	}
	return nil
}

// need is how long a request takes while c of them are there.
func (s *serverOptions) need(c int) time.Duration {
	t := float64(s.base)
	if c > s.free {
		t *= math.Pow(s.factor, float64(c-s.free)/s.step)
	}
	return time.Duration(min(t, float64(math.MaxInt64/2)))
}

// serve is the role of the server: it serves until its standard input ends. A
// line "503" there makes it answer 503 to everything, "200" ends that. On its
// standard output it tells its load, see tell.
func serve(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	var o serverOptions
	f := flag.NewFlagSet("storm server", flag.ContinueOnError)
	f.SetOutput(stderr)
	listen := f.String("listen", "127.0.0.1:0", "address")
	o.flags(f)
	if err := f.Parse(args); err != nil {
		return err
	}
	raiseDescriptors()
	listeners, err := listenWide(*listen, o.backlog)
	if err != nil {
		return err
	}
	w := newWork(&o)
	for _, l := range listeners {
		go acceptAll(l, w)
	}
	go w.run()
	go tell(w, o.report, stdout)
	for sc := bufio.NewScanner(stdin); sc.Scan(); {
		w.reject.Store(sc.Text() == "503")
	}
	return nil
}

// raiseDescriptors allows as many connections as the machine lets this
// process have; direct, an outage leaves 20 000 behind.
func raiseDescriptors() {
	wide := syscall.Rlimit{Cur: 1 << 17, Max: 1 << 17}
	_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &wide) // without the right to it, what there is must do
}

// listenWide opens so many listeners on one port that the kernel accepts
// backlog connections, whatever the system's limit for a single one.
func listenWide(addr string, backlog int) ([]net.Listener, error) {
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if e := raw.Control(func(fd uintptr) { err = setReusePort(int(fd)) }); e != nil {
			return e
		}
		return err
	}}
	var all []net.Listener
	for room := 0; room < backlog; room += oneBacklog() {
		l, err := c.Listen(context.Background(), "tcp", addr)
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", addr, err)
		}
		addr = l.Addr().String()
		all = append(all, l)
	}
	return all, nil
}

// oneBacklog is the system's limit of connections waiting at one listener.
func oneBacklog() int {
	b, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	if err != nil {
		return 128
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || n < 1 {
		return 128
	}
	return n
}

func acceptAll(l net.Listener, w *work) {
	for {
		c, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // no descriptors left
			continue
		}
		go w.serveConn(c)
	}
}

// tell writes a line per interval: requests now, most of them since the last
// line, answers given since the start.
func tell(w *work, every time.Duration, out io.Writer) {
	for range time.Tick(every) {
		now, most, answered := w.load()
		if _, err := fmt.Fprintln(out, now, most, answered); err != nil {
			return
		}
	}
}
