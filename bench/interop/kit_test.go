package interop

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// patience ends what hangs.
const patience = 2 * time.Minute

// directory has the programs, which are built once.
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

// testdata returns the path of a file of the gRPC project's own tests. Package testdata of gRPC does not find it in a
// program that was compiled with -trimpath.
func testdata(t *testing.T, name string) string {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "google.golang.org/grpc").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(strings.TrimSpace(string(dir)), "testdata", name)
}

// newBed returns a Bed that ends with the test.
func newBed(t *testing.T) *rig.Bed {
	t.Helper()
	b := &rig.Bed{}
	t.Cleanup(b.End)
	return b
}

// startServer starts gRPC's interoperability server and returns its address.
func startServer(t *testing.T, flags ...string) (addr string) {
	t.Helper()
	addr = address(t)
	c, err := rig.Start(exec.Command(filepath.Join(directory, "server"), append([]string{"--port=" + port(t, addr)}, flags...)...), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Kill)
	if err := c.AwaitPort(addr); err != nil {
		t.Fatalf("%v; it said:\n%s", err, c.Lines())
	}
	return addr
}

// address returns an address of loopback that was free a moment ago. Its port is none that Linux gives to
// outgoing connections, which are those from 32768 on.
func address(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(20000+rand.N(12000))))
		if err != nil {
			continue
		}
		defer l.Close()
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

// startProxy runs the binary before an upstream, on 127.0.0.1, where all clients expect it.
func startProxy(t *testing.T, upstream string, settings ...string) *rig.Proxy {
	t.Helper()
	p, err := newBed(t).Start(t.Context(), rig.Spec{Program: filepath.Join(directory, "retryproxy"), Listen: address(t), Upstream: upstream, Env: settings})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the proxy said:\n%s", p.Said())
		}
	})
	return p
}

// metric returns the sum of a metric, whose name lacks the prefix retryproxy_.
func metric(t *testing.T, p *rig.Proxy, name string) float64 {
	t.Helper()
	m, err := p.Scrape()
	if err != nil {
		t.Fatal(err)
	}
	return m.Sum(name)
}

// run runs a program to its end and returns its output.
func run(t *testing.T, d time.Duration, dir string, env []string, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	return string(out), err
}

// pattern has n bytes that depend on their position.
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
