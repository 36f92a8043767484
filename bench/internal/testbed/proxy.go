package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/process"
	"github.com/retryproxy/retryproxy/bench/internal/series"
)

// Spec says how the proxy is started.
type Spec struct {
	Program       string
	Upstream      string   // URL
	Listen, Admin string   // host:port or unix:/path; "": addresses of its own
	Env           []string // its settings; of two of the same name the last counts
	By            []string // a command line by way of which it is started, in the end by exec; nil: none
	Log           string   // a file for what it says; "": the last lines are kept
}

// Proxy is a process of the proxy.
type Proxy struct {
	*process.Child
	Addr, Admin string
	Admins      *http.Client // for the admin listener, whatever the host of a URL; each request has a connection of its own
	log         string
}

// Split returns the network and the address of host:port or unix:/path.
func Split(addr string) (network, address string) {
	if path, is := strings.CutPrefix(addr, "unix:"); is {
		return "unix", path
	}
	return "tcp", addr
}

// Start starts a proxy and waits until it is ready. It is killed at the end.
func (b *Bed) Start(ctx context.Context, s Spec) (*Proxy, error) {
	own, err := process.OwnAddresses(2)
	if err != nil { // not Linux
		own, err = process.FreeAddresses(2)
	}
	if err != nil {
		return nil, err
	}
	for i, addr := range []*string{&s.Listen, &s.Admin} {
		if *addr == "" {
			*addr = own[i]
		}
	}
	line := append(slices.Clone(s.By), s.Program)
	if s.Log != "" {
		line = append([]string{"sh", "-c", `exec "$@" 2>` + s.Log, "sh"}, line...)
	}
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "RETRYPROXY_LISTEN=" + s.Listen, "RETRYPROXY_ADMIN_LISTEN=" + s.Admin,
		"RETRYPROXY_UPSTREAM=" + s.Upstream}, s.Env...)
	child, err := process.Start(cmd, nil)
	if err != nil {
		return nil, err
	}
	b.Later(child.Kill)
	p := &Proxy{Child: child, Addr: s.Listen, Admin: s.Admin, log: s.Log}
	p.Admins = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		network, address := Split(s.Admin)
		return new(net.Dialer).DialContext(ctx, network, address)
	}}}
	if err := p.awaitReady(ctx); err != nil {
		return nil, fmt.Errorf("the proxy is not ready: %w; it said:\n%s", err, p.Said())
	}
	return p, nil
}

func (p *Proxy) awaitReady(ctx context.Context) (err error) {
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end) && ctx.Err() == nil; {
		if _, _, err = p.Get("/readyz"); err == nil {
			return nil
		}
		select {
		case <-p.Exited:
			return errors.New("it ended at once")
		case <-time.After(20 * time.Millisecond):
		}
	}
	return errors.Join(err, ctx.Err())
}

// Get asks the admin listener; another status than 200 is an error.
func (p *Proxy) Get(path string) (http.Header, []byte, error) {
	res, err := p.Admins.Get("http://localhost" + path)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", path, res.Status)
	}
	return res.Header, body, err
}

// Scrape reads the metrics.
func (p *Proxy) Scrape(ctx context.Context) (series.Series, error) {
	return series.Fetch(ctx, p.Admins, "localhost")
}

// Descriptors counts the open files, sockets included; 0 where that cannot be known.
func (p *Proxy) Descriptors() int {
	open, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
	return len(open)
}

// Said is what the process said last, for an error.
func (p *Proxy) Said() string {
	b, _ := os.ReadFile(p.log)
	return p.Lines() + string(b[max(0, len(b)-8<<10):])
}

// Ended waits for the process to end and says how: "exit status 0", if all is well.
func (p *Proxy) Ended(limit time.Duration) string {
	select {
	case <-p.Exited:
		return p.Cmd.ProcessState.String()
	case <-time.After(limit):
		return fmt.Sprintf("still running after %v", limit)
	}
}
