//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/process"
	"github.com/retryproxy/retryproxy/bench/internal/series"
)

// defaults are the settings of the proxy where a fault has no other ones: short
// times, so that a fault of a second is longer than they are, and what an inbound
// proxy has by default, wherever the upstream is.
var defaults = []string{
	"RETRYPROXY_POSITION=inbound",
	"RETRYPROXY_ATTEMPT_TIMEOUT=1s",
	"RETRYPROXY_DIAL_TIMEOUT=1s",
	"RETRYPROXY_BODY_IDLE_TIMEOUT=2s",
	"RETRYPROXY_LOG_LEVEL=error",
}

// proxy is the program under test.
type proxy struct {
	*process.Child
	listen, admin string // host:port or unix:/path
	admins        *http.Client
}

// ways splits host:port or unix:/path for net.Dial.
func ways(addr string) (network, address string) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return "unix", path
	}
	return "tcp", addr
}

// startProxy starts the program by way of another command (nil: none) and waits until it is ready.
func startProxy(ctx context.Context, path, listen, admin string, by []string, environ ...[]string) (*proxy, error) {
	line := append(append([]string{}, by...), path)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "RETRYPROXY_LISTEN=" + listen, "RETRYPROXY_ADMIN_LISTEN=" + admin}
	for _, e := range environ {
		cmd.Env = override(cmd.Env, e)
	}
	c, err := process.Start(cmd, nil)
	if err != nil {
		return nil, err
	}
	p := &proxy{Child: c, listen: listen, admin: admin}
	p.admins = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			network, address := ways(admin)
			return new(net.Dialer).DialContext(ctx, network, address)
		}}}
	if err := p.awaitReady(ctx); err != nil {
		p.Kill()
		return nil, fmt.Errorf("the proxy is not ready: %w; it said:\n%s", err, p.Lines())
	}
	return p, nil
}

// override gives the environment with more, which replace those of the same name.
func override(environ, more []string) []string {
	var kept []string
	for _, old := range environ {
		name, _, _ := strings.Cut(old, "=")
		replaced := false
		for _, e := range more {
			replaced = replaced || strings.HasPrefix(e, name+"=")
		}
		if !replaced {
			kept = append(kept, old)
		}
	}
	return append(kept, more...)
}

func (p *proxy) awaitReady(ctx context.Context) error {
	var err error
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end) && ctx.Err() == nil; {
		var r *http.Response
		if r, err = p.admins.Get("http://admin/readyz"); err == nil {
			_ = r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("GET /readyz: %s", r.Status)
		}
		select {
		case <-p.Exited:
			return fmt.Errorf("it ended at once")
		case <-time.After(20 * time.Millisecond):
		}
	}
	return err
}

func (p *proxy) scrape(ctx context.Context) (series.Series, error) {
	return series.Fetch(ctx, p.admins, "admin")
}
