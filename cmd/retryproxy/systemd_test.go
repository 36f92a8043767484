package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/internal/logtest"
)

// child is retryproxy as a separate process: this test binary under that name.
type child struct {
	t   *testing.T
	cmd *exec.Cmd
	log *logtest.Buffer
}

// spawn starts a child. wrap, if any, is a command line that finally runs its arguments.
func spawn(t *testing.T, files []*os.File, wrap []string, environ ...string) *child {
	t.Helper()
	log := &logtest.Buffer{}
	c := spawnTo(t, log, files, wrap, environ...)
	c.log = log
	return c
}

// spawnTo starts a child that writes to out.
func spawnTo(t *testing.T, out io.Writer, files []*os.File, wrap []string, environ ...string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "retryproxy") // TestMain looks at the name
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	args := append(wrap, path)
	c := &child{t: t, cmd: exec.Command(args[0], args[1:]...)}
	for _, e := range environ {
		c.cmd.Env = append(c.cmd.Env, "RETRYPROXY_"+e)
	}
	c.cmd.Stdout, c.cmd.Stderr, c.cmd.ExtraFiles = out, out, files
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill(); _ = c.cmd.Wait() })
	return c
}

// ends waits until the process ends by itself.
func (c *child) ends() error {
	ended := make(chan error, 1)
	go func() { ended <- c.cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(patience):
		_ = c.cmd.Process.Kill()
		<-ended
		return fmt.Errorf("it did not end within %v", patience)
	}
}

// load sends POSTs, which are not retried, over persistent connections until stopped.
type load struct {
	wg     sync.WaitGroup
	cancel context.CancelFunc
	good   atomic.Int64
	mu     sync.Mutex // guards failed
	failed []error
}

func startLoad(address string, clients int) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{cancel: cancel}
	for range clients {
		l.wg.Go(func() {
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
			defer client.CloseIdleConnections()
			for ctx.Err() == nil {
				l.note(post(client, address))
			}
		})
	}
	return l
}

func post(client *http.Client, address string) error {
	response, err := client.Post("http://"+address+"/", "text/plain", strings.NewReader("once"))
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // only a test
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 || string(body) != "once" {
		return fmt.Errorf("%s %q: %w", response.Status, body, err)
	}
	return nil
}

func (l *load) note(err error) {
	if err == nil {
		l.good.Add(1)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = append(l.failed, err)
}

// more waits for n further good responses.
func (l *load) more(t *testing.T, n int64) {
	t.Helper()
	until := l.good.Load() + n
	for end := time.Now().Add(patience); l.good.Load() < until; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d good responses, %d wanted", l.good.Load(), until)
		}
	}
}

func (l *load) stop() []error {
	l.cancel()
	l.wg.Wait()
	return l.failed
}

func echo(t *testing.T, wait time.Duration) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		time.Sleep(wait)
		_, _ = w.Write(body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// freePort returns a port that was free a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // only a test
	return l.Addr().String()
}

// withSystemd passes the descriptors from 3 on as systemd does.
var withSystemd = []string{"/bin/sh", "-c", `LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" "$@"`}

func socketFile(t *testing.T, listen string) *os.File {
	t.Helper()
	l, err := net.Listen("tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // the file has its own descriptor
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// The socket stays open between two processes: clients wait for the second one.
func TestRestartUnderSystemdLosesNothing(t *testing.T) {
	listen := freePort(t)
	files := []*os.File{socketFile(t, listen)}
	env := []string{"LISTEN=" + listen, "ADMIN_LISTEN=off", "UPSTREAM=" + echo(t, time.Millisecond)}
	clients := startLoad(listen, 8)
	for range 3 {
		p := spawn(t, files, withSystemd, env...)
		clients.more(t, 200)
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := p.ends(); err != nil {
			t.Errorf("%v\n%s", err, p.log)
		}
	}
	last := spawn(t, files, withSystemd, env...)
	clients.more(t, 1)
	for _, err := range clients.stop() {
		t.Error(err)
	}
	if err := last.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := last.ends(); err != nil {
		t.Errorf("%v\n%s", err, last.log)
	}
}

func TestSocketOfSystemdThatNoSettingNamesStopsTheStart(t *testing.T) {
	f := socketFile(t, "127.0.0.1:0")
	p := spawn(t, []*os.File{f}, withSystemd, "LISTEN="+freePort(t), "ADMIN_LISTEN=off", "UPSTREAM=http://127.0.0.1:1")
	if err := p.ends(); err == nil {
		t.Error("it ended in order")
	}
	if !strings.Contains(p.log.String(), "but no setting has this address") {
		t.Errorf("it says:\n%s", p.log)
	}
}

// Systemd is notified when requests are accepted, not before.
func TestSystemdIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer notify.Close() //nolint:errcheck // only a test
	p := spawn(t, nil, []string{"/usr/bin/env", "NOTIFY_SOCKET=" + path}, "LISTEN=127.0.0.1:0", "ADMIN_LISTEN=off", "UPSTREAM=http://127.0.0.1:1")
	_ = notify.SetReadDeadline(time.Now().Add(patience))
	line, err := bufio.NewReader(notify).ReadString('1')
	if line != "READY=1" {
		t.Errorf("%q, %v\n%s", line, err, p.log)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.ends(); err != nil {
		t.Error(err)
	}
}
