package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/process"
	"github.com/retryproxy/retryproxy/bench/internal/series"
)

// Settings of the proxy that the judgement depends on.
const (
	attemptTimeout = 700 * time.Millisecond
	requestTimeout = 3 * time.Second
	mostRetries    = 3
)

// settings make the run lively: short timeouts, small memory, many retries.
func settings(listen, admin, upstream string) []string {
	return []string{
		"RETRYPROXY_LISTEN=" + listen,
		"RETRYPROXY_ADMIN_LISTEN=" + admin,
		"RETRYPROXY_UPSTREAM=http://" + upstream,
		"RETRYPROXY_ROUTES=plain,unsafe",
		"RETRYPROXY_ROUTE_PLAIN_PATH=/plain/*",
		"RETRYPROXY_ROUTE_UNSAFE_PATH=/unsafe/*",
		"RETRYPROXY_ROUTE_UNSAFE_RETRY_UNSAFE=true",
		"RETRYPROXY_ATTEMPT_TIMEOUT=" + attemptTimeout.String(),
		"RETRYPROXY_REQUEST_TIMEOUT=" + requestTimeout.String(),
		"RETRYPROXY_MAX_RETRIES=" + strconv.Itoa(mostRetries),
		"RETRYPROXY_BACKOFF_BASE=5ms",
		"RETRYPROXY_BACKOFF_MAX=200ms",
		"RETRYPROXY_BACKOFF_THROTTLED_BASE=20ms",
		"RETRYPROXY_BUDGET_RATIO=0.5",
		"RETRYPROXY_BUDGET_BURST=50",
		"RETRYPROXY_RETRY_BUFFER_TOTAL_BYTES=4MiB",
		"RETRYPROXY_BODY_IDLE_TIMEOUT=10s",
		"RETRYPROXY_DRAIN_TIMEOUT=5s",
		"RETRYPROXY_LOG_LEVEL=error",
		"GORACE=halt_on_error=0",
	}
}

// proxy is the program under test, as a child process.
type proxy struct {
	addr, admin string
	cmd         *exec.Cmd
	client      *http.Client
	exited      chan struct{}
	exitErr     error // read after exited
	log         *logTail
}

// startProxy starts the program and waits until it is ready.
func startProxy(ctx context.Context, path, upstream string) (*proxy, error) {
	free, err := process.FreeAddresses(2)
	if err != nil {
		return nil, err
	}
	addr, admin := free[0], free[1]
	p := &proxy{addr: addr, admin: admin, exited: make(chan struct{}), log: &logTail{},
		client: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 1}}}
	p.cmd = exec.Command(path)
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, settings(addr, admin, upstream)...)
	out, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the proxy: %w", err)
	}
	go func() {
		defer close(p.exited)
		p.log.follow(out)
		p.exitErr = p.cmd.Wait()
	}()
	if err := p.awaitReady(ctx); err != nil {
		p.kill()
		return nil, fmt.Errorf("%w; it said:\n%s", err, p.log)
	}
	return p, nil
}

func (p *proxy) awaitReady(ctx context.Context) error {
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end) && ctx.Err() == nil; {
		resp, err := p.client.Get("http://" + p.admin + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.exited:
			return fmt.Errorf("the proxy ended at once: %v", p.exitErr)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return errors.New("the proxy is not ready after 15 s")
}

func (p *proxy) kill() {
	p.cmd.Process.Kill()
	<-p.exited
}

// stop ends the proxy by SIGTERM and says what was wrong about its end.
func (p *proxy) stop() error {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(15 * time.Second):
		p.kill()
		return errors.New("still running 15 s after SIGTERM")
	}
	if p.exitErr != nil {
		return fmt.Errorf("%w; it said:\n%s", p.exitErr, p.log)
	}
	return nil
}

// scrape reads the proxy's metrics: value by series.
func (p *proxy) scrape() (series.Series, error) {
	return series.Fetch(context.Background(), p.client, p.admin)
}

// descriptors counts the open files of the proxy, sockets included; -1 where
// that cannot be known.
func (p *proxy) descriptors() int {
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/fd")
	if err != nil {
		return -1
	}
	return len(entries)
}

// logTail keeps what the proxy said that must not be.
type logTail struct {
	mu    sync.Mutex
	lines []string // the last ones
	bad   []string // those that tell of a fault
}

var faultLine = regexp.MustCompile(`DATA RACE|panic|fatal error|"level":"(error|dpanic|panic|fatal)"`)

func (l *logTail) follow(r io.Reader) {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		l.mu.Lock()
		l.lines = append(l.lines, sc.Text())
		if len(l.lines) > 60 {
			l.lines = l.lines[1:]
		}
		if faultLine.MatchString(sc.Text()) && len(l.bad) < 20 {
			l.bad = append(l.bad, sc.Text())
		}
		l.mu.Unlock()
	}
	io.Copy(io.Discard, r)
}

// faults are the lines that tell of one.
func (l *logTail) faults() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.bad...)
}

func (l *logTail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}
