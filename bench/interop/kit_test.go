package interop

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience ends what hangs; nothing that works takes so long.
const patience = 2 * time.Minute

// directory has the programs, built once.
var directory string

func TestMain(m *testing.M) {
	var err error
	if directory, err = os.MkdirTemp("", "interop"); err != nil {
		panic(err)
	}
	code := 1
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(directory)
	os.Exit(code)
}

func build() error {
	for _, b := range []struct{ dir, pkg, name string }{
		{"../..", "./cmd/retryproxy", "retryproxy"},
		{".", "google.golang.org/grpc/interop/client", "client"},
		{".", "google.golang.org/grpc/interop/server", "server"},
		{".", "github.com/summerwind/h2spec/cmd/h2spec", "h2spec"},
	} {
		c := exec.Command("go", "build", "-o", filepath.Join(directory, b.name), b.pkg)
		c.Dir = b.dir
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", b.pkg, err, out)
		}
	}
	return nil
}

// program is one that ends with the test, with what it said.
type program struct {
	*exec.Cmd
	ended chan struct{}

	mu   sync.Mutex // guards said
	said bytes.Buffer
}

func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.Write(b)
}

func (p *program) words() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.String()
}

// start runs a program until the test ends, and waits until it accepts
// connections at each address.
func start(t *testing.T, env []string, addrs []string, name string, args ...string) *program {
	t.Helper()
	p := &program{Cmd: exec.Command(name, args...), ended: make(chan struct{})}
	p.Env = append(os.Environ(), env...)
	p.Stdout, p.Stderr = p, p
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.Wait(); close(p.ended) }()
	t.Cleanup(func() {
		_ = p.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.ended:
		case <-time.After(patience):
			_ = p.Process.Kill()
			<-p.ended
			t.Errorf("%s did not end:\n%s", name, p.words())
		}
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(name), tail(p.words()))
		}
	})
	for _, addr := range addrs {
		p.await(t, addr)
	}
	return p
}

func (p *program) await(t *testing.T, addr string) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", addr); err == nil {
			_ = c.Close()
			return
		}
		select {
		case <-p.ended:
			t.Fatalf("%s ended:\n%s", p.Path, p.words())
		default:
		}
	}
	t.Fatalf("nothing listens on %s", addr)
}

func tail(s string) string { return s[max(0, len(s)-4000):] }

// address is one of loopback that nobody listened on a moment ago, with a port that
// no connection takes as its own end: Linux gives those from 32768 on.
func address(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(20000+rand.N(12000))))
		if err != nil {
			continue
		}
		defer l.Close() //nolint:errcheck // it was only asked
		return l.Addr().String()
	}
	t.Fatal("no free port from 20000 to 32000")
	return ""
}

func port(t *testing.T, addr string) string {
	t.Helper()
	_, p, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// proxy is a running retryproxy.
type proxy struct {
	*program
	addr, admin string
}

// startProxy runs the binary before an upstream.
func startProxy(t *testing.T, upstream string, settings ...string) *proxy {
	t.Helper()
	p := &proxy{addr: address(t), admin: address(t)}
	env := append([]string{"RETRYPROXY_LISTEN=" + p.addr, "RETRYPROXY_ADMIN_LISTEN=" + p.admin, "RETRYPROXY_UPSTREAM=" + upstream}, settings...)
	p.program = start(t, env, []string{p.addr, p.admin}, filepath.Join(directory, "retryproxy"))
	return p
}

// metric is the sum of the samples whose line begins so.
func (p *proxy) metric(t *testing.T, begins string) (sum float64) {
	t.Helper()
	res, err := http.Get("http://" + p.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // it was only read
	for sc := bufio.NewScanner(res.Body); sc.Scan(); {
		line := sc.Text()
		if strings.HasPrefix(line, begins) {
			v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			sum += v
		}
	}
	return sum
}

// rss is the resident memory in KiB, which the kernel keeps.
func (p *proxy) rss(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.Fields(v)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// serve is an upstream of net/http; h2: HTTP/2 by prior knowledge too.
func serve(t *testing.T, h2 bool, h http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: patience, Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(h2)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-ended })
	return l.Addr().String()
}

// run runs a program to its end and gives what it said.
func run(t *testing.T, d time.Duration, dir string, env []string, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	return string(out), err
}

// pattern gives n bytes that differ by where they are.
type pattern struct{ at, n int64 }

func (p *pattern) Read(b []byte) (int, error) {
	if p.at == p.n {
		return 0, io.EOF
	}
	b = b[:min(int64(len(b)), p.n-p.at)]
	for i := range b {
		at := p.at + int64(i)
		b[i] = byte(at ^ at>>8 ^ at>>16)
	}
	p.at += int64(len(b))
	return len(b), nil
}
