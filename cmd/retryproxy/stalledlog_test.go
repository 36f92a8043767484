package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/internal/serve"
)

// piped is a child whose standard error is a pipe that the test reads, or does not.
type piped struct {
	*child
	log           *os.File // the pipe's reading end
	listen, admin string
}

// spawnPiped starts a child and waits until it is ready. It reads nothing of the log.
func spawnPiped(t *testing.T, environ ...string) *piped {
	t.Helper()
	return spawnPipedBy(t, nil, environ...)
}

// spawnPipedBy starts the child by a command before it, which may set other variables.
func spawnPipedBy(t *testing.T, wrap []string, environ ...string) *piped {
	t.Helper()
	p := &piped{listen: freePort(t), admin: freePort(t)}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = read.Close() })
	p.log = read
	p.child = spawnTo(t, write, nil, wrap, append(environ, "LISTEN="+p.listen, "ADMIN_LISTEN="+p.admin)...)
	_ = write.Close()
	for end := time.Now().Add(patience); p.status("/readyz") != 200; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not ready")
		}
	}
	return p
}

// ask requests a path of the admin listener.
func (p *piped) ask(path string) (status int, body string) {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + p.admin + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close() //nolint:errcheck // only a test
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
}

func (p *piped) status(path string) int { status, _ := p.ask(path); return status }

// dropped returns how many lines the metric counts.
func (p *piped) dropped() (n int) {
	_, body := p.ask("/metrics")
	if _, after, found := strings.Cut(body, "\nretryproxy_log_lines_dropped_total "); found {
		_, _ = fmt.Sscan(after, &n)
	}
	return n
}

// post sends a number of POSTs, whose log lines are long, and requires a response to each.
func (p *piped) post(n int) {
	p.t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for i := range n {
		response, err := client.Post("http://"+p.listen+"/"+strings.Repeat("x", 1000), "text/plain", strings.NewReader("once"))
		if err != nil {
			p.t.Fatalf("request %d: %v", i, err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.StatusCode != 200 {
			p.t.Fatalf("request %d: %s", i, response.Status)
		}
	}
}

// end sends SIGTERM and waits for the end in order.
func (p *piped) end() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	if err := p.ends(); err != nil {
		p.t.Errorf("it ended with %v", err)
	}
}

// beyondPipe is more requests than the lines that a pipe (64 KiB) and the log's buffers (1 MiB) hold.
const beyondPipe = 1500

func TestALogThatNobodyReadsStopsNeitherRequestsNorTheEnd(t *testing.T) {
	p := spawnPiped(t, "ACCESS_LOG=true", "UPSTREAM="+echo(t, 0))
	p.post(beyondPipe)
	if n := p.dropped(); n == 0 {
		t.Error("no dropped line is counted")
	}
	p.end()
}

func TestALogThatIsReadAgainSaysHowManyLinesItMissed(t *testing.T) {
	p := spawnPiped(t, "ACCESS_LOG=true", "UPSTREAM="+echo(t, 0))
	p.post(beyondPipe)
	lines := bufio.NewScanner(p.log)
	for missed := 0; missed == 0; {
		if !lines.Scan() {
			t.Fatalf("the log ended: %v", lines.Err())
		}
		if _, after, found := strings.Cut(lines.Text(), `dropped because nobody read it","lines":`); found {
			_, _ = fmt.Sscan(after, &missed)
			if counted := p.dropped(); missed != counted {
				t.Errorf("the line says %d, the metric %d", missed, counted)
			}
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	last := ""
	for lines.Scan() {
		last = lines.Text()
	}
	if !strings.Contains(last, `"ended"`) {
		t.Errorf("the last line is %s", last)
	}
	if err := p.ends(); err != nil {
		t.Error(err)
	}
}

func TestTheEndOfTheLogsReaderIsNotTheEndOfTheProxy(t *testing.T) {
	p := spawnPiped(t, "ACCESS_LOG=true", "UPSTREAM="+echo(t, 0))
	_ = p.log.Close()
	p.post(3)
	for end := time.Now().Add(patience); p.dropped() < 3; time.Sleep(10 * time.Millisecond) { // another goroutine writes them
		if time.Now().After(end) {
			t.Fatalf("%d dropped lines are counted", p.dropped())
		}
	}
	p.end()
}

func TestWrongSettingsEndTheProcessWithItsCodeWhoeverReads(t *testing.T) {
	for name, c := range map[string]struct{ gone, full, reads bool }{"nobody any more": {gone: true}, "nobody": {full: true}, "somebody": {reads: true}} {
		t.Run(name, func(t *testing.T) {
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer read.Close() //nolint:errcheck // only a test
			if c.gone {
				_ = read.Close()
			}
			if c.full {
				_ = write.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
				for err == nil {
					_, err = write.Write(make([]byte, 4096))
				}
			}
			p := spawnTo(t, write, nil, nil, "UPSTREAM=::")
			_ = write.Close()
			if c.reads {
				if text, _ := io.ReadAll(read); !strings.Contains(string(text), "retryproxy: not started: 1 error") {
					t.Errorf("%s", text)
				}
			}
			var code *exec.ExitError
			if err := p.ends(); !asExit(err, &code) || code.ExitCode() != exitUsage {
				t.Errorf("it ended with %v, expected exit code %d", err, exitUsage)
			}
		})
	}
}

func asExit(err error, code **exec.ExitError) bool {
	e, is := err.(*exec.ExitError)
	*code = e
	return is
}

// silence listens, accepts, and never reads or responds. connected receives once, when somebody has
// connected.
func silence(t *testing.T) (addr string, connected <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	once := make(chan struct{}, 1)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			defer nc.Close() //nolint:errcheck // only a test
			select {
			case once <- struct{}{}:
			default:
			}
		}
	})
	t.Cleanup(func() { _ = l.Close(); accepting.Wait() })
	return l.Addr().String(), once
}

// An engine or a browser that accepts and never reads or responds is not waited for.
func TestPeersThatAcceptAndNeverReadStopNothing(t *testing.T) {
	engine, _ := silence(t)
	p := spawnPiped(t, "UPSTREAM="+echo(t, 0), "SHARED=redis://"+engine, "RATE_LIMIT=5000/s", "POSITION=outbound")
	for _, path := range []string{"/page/events", "/metrics", "/page/state.json", "/debug/pprof/trace?seconds=60"} {
		nc, err := net.Dial("tcp", p.admin)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close() //nolint:errcheck // only a test
		_ = nc.(*net.TCPConn).SetReadBuffer(4096)
		if _, err := io.WriteString(nc, strings.Repeat("GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n", 50)); err != nil {
			t.Fatal(err)
		}
	}
	p.post(50)
	if status := p.status("/readyz"); status != 200 {
		t.Errorf("/readyz: %d", status)
	}
	p.end()
}

// A collector of traces that accepts and never reads or responds delays no request, and the end
// only until the drain's time is over. The exporter's own limits are minutes here.
func TestACollectorThatNeverReadsStopsNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("builds retryproxy-otel")
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-tags", "otel", "-o", filepath.Join(dir, serve.TracingProgram), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	collector, connected := silence(t)
	p := spawnPipedBy(t, []string{"env", "PATH=" + dir, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://" + collector + "/v1/traces",
		"OTEL_BSP_EXPORT_TIMEOUT=600000", "OTEL_EXPORTER_OTLP_TIMEOUT=600000"}, "UPSTREAM="+echo(t, 0), "DRAIN_TIMEOUT=1s")
	p.post(beyondPipe) // 3000 spans; one batch of 512 is being sent, and 2048 wait
	select {
	case <-connected:
	case <-time.After(patience):
		t.Fatal("nothing is sent to the collector")
	}
	p.post(50)
	if status := p.status("/readyz"); status != 200 {
		t.Errorf("/readyz: %d", status)
	}
	p.end()
	if log, err := io.ReadAll(p.log); err != nil || !strings.Contains(string(log), "not all traces could be sent") {
		t.Errorf("the log (%v) does not report the spans that were lost:\n%s", err, log)
	}
}
