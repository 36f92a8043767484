package page

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// patience only ends a test that hangs.
const patience = 2 * time.Minute

// upstream answers according to the path, until it is stopped.
type upstream struct {
	t       *testing.T
	address string
	seen    atomic.Int64
	server  *http.Server
	ended   chan struct{}
}

func startUpstream(t *testing.T) *upstream {
	u := &upstream{t: t, address: "127.0.0.1:0"}
	u.open()
	t.Cleanup(u.takeAway)
	return u
}

// open listens, at the same address as before.
func (u *upstream) open() {
	l, err := net.Listen("tcp", u.address)
	if err != nil {
		u.t.Fatal(err)
	}
	u.address, u.server, u.ended = l.Addr().String(), &http.Server{Handler: u}, make(chan struct{})
	server, ended := u.server, u.ended
	go func() {
		defer close(ended)
		_ = server.Serve(l)
	}()
}

func (u *upstream) takeAway() {
	_ = u.server.Close()
	<-u.ended
}

// ServeHTTP fails according to the first part of the path.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := u.seen.Add(1)
	_, _ = io.Copy(io.Discard, r.Body)
	time.Sleep(time.Duration(1+rand.IntN(6)) * time.Millisecond)
	switch {
	case strings.HasPrefix(r.URL.Path, "/broken"):
		w.WriteHeader(http.StatusServiceUnavailable)
	case strings.HasPrefix(r.URL.Path, "/search") && n%9 == 0:
		w.WriteHeader([]int{503, 503, 502, 500}[rand.IntN(4)])
	case strings.HasPrefix(r.URL.Path, "/search") && n%40 == 1:
		panic(http.ErrAbortHandler)
	case strings.HasPrefix(r.URL.Path, "/orders") && n%37 == 0:
		w.WriteHeader(http.StatusBadGateway)
	case strings.HasPrefix(r.URL.Path, "/report"):
		time.Sleep(time.Duration(80+rand.IntN(500)) * time.Millisecond)
	}
	_, _ = io.WriteString(w, "ok\n")
}

// proxy is a running retryproxy.
type proxy struct {
	listen, admin string
}

func startProxy(t *testing.T, environ ...string) *proxy {
	t.Helper()
	binary := os.Getenv("RETRYPROXY")
	if binary == "" {
		t.Fatal("RETRYPROXY: expected the path of the program; make e2e-page sets it")
	}
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), append([]string{"RETRYPROXY_LISTEN=127.0.0.1:0", "RETRYPROXY_ADMIN_LISTEN=127.0.0.1:0"}, environ...)...)
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer hung.Stop()
	lines := bufio.NewScanner(log)
	p := &proxy{}
	for p.listen == "" && lines.Scan() {
		var line struct{ Msg, Listen, Admin string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "started" {
			p.listen, p.admin = line.Listen, line.Admin
		}
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, log)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-drained
		if err := cmd.Wait(); err != nil {
			t.Errorf("retryproxy: %v", err)
		}
	})
	if p.listen == "" {
		t.Fatal("retryproxy did not start")
	}
	return p
}

// request is one kind of traffic.
type request struct {
	method, path string
	perSecond    int
}

// drive sends requests until the test ends or stop is called.
func (p *proxy) drive(t *testing.T, kinds ...request) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var senders sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	for _, k := range kinds {
		senders.Go(func() {
			ticker := time.NewTicker(time.Second / time.Duration(k.perSecond))
			defer ticker.Stop()
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
					path := strings.ReplaceAll(k.path, "{n}", fmt.Sprint(i))
					senders.Go(func() { p.send(ctx, client, k.method, path) })
				}
			}
		})
	}
	stop = func() {
		cancel()
		senders.Wait()
		client.CloseIdleConnections()
	}
	t.Cleanup(stop)
	return stop
}

func (p *proxy) send(ctx context.Context, client *http.Client, method, path string) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+p.listen, nil)
	if err != nil {
		return
	}
	r.URL.Opaque = "//" + p.listen + path // exactly as given
	response, err := client.Do(r)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
}
