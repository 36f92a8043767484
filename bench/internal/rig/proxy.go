package rig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Spec says how to start retryproxy.
type Spec struct {
	Program       string
	Upstream      string   // URL
	Listen, Admin string   // host:port or unix:/path; "" means new addresses
	Env           []string // settings; the last one of a name counts
	By            []string // a command line that starts it with exec; may be nil
	Log           string   // a file for its output; may be ""
	Cores         []int    // may be nil
	Now           bool     // Start does not wait until it is ready
}

// Proxy is a process of retryproxy or of a peer.
type Proxy struct {
	*Child
	Addr   string
	Admins *http.Client // client of the admin listener, with a new connection for each request
	log    string
}

// Network splits host:port or unix:/path into network and address.
func Network(addr string) (network, address string) {
	if path, is := strings.CutPrefix(addr, "unix:"); is {
		return "unix", path
	}
	return "tcp", addr
}

// Start starts retryproxy and waits until it is ready. It is killed at the end.
func (b *Bed) Start(ctx context.Context, s Spec) (*Proxy, error) {
	own := OwnAddresses(2)
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
	cmd.Env = environ("RETRYPROXY_LISTEN="+s.Listen, "RETRYPROXY_ADMIN_LISTEN="+s.Admin, "RETRYPROXY_UPSTREAM="+s.Upstream)
	if len(s.Cores) > 0 {
		cmd.Env = append(cmd.Env, "GOMAXPROCS="+strconv.Itoa(len(s.Cores)))
	}
	cmd.Env = append(cmd.Env, s.Env...)
	p := &Proxy{Addr: s.Listen, log: s.Log}
	if err := pinned(s.Cores, func() (err error) { p.Child, err = Start(cmd, nil); return err }); err != nil {
		return nil, err
	}
	b.Later(p.Kill)
	p.Admins = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		network, address := Network(s.Admin)
		return new(net.Dialer).DialContext(ctx, network, address)
	}}}
	if s.Now {
		return p, nil
	}
	if err := p.await(ctx, func() error { _, _, err := p.Get("/readyz"); return err }); err != nil {
		return nil, fmt.Errorf("the proxy is not ready: %w; it said:\n%s", err, p.Said())
	}
	return p, nil
}

// StartMany starts n of them concurrently.
func (b *Bed) StartMany(ctx context.Context, s Spec, n int) ([]*Proxy, error) {
	all, errs := make([]*Proxy, n), make([]error, n)
	Parallel(n, n, func(i int) { all[i], errs[i] = b.Start(ctx, s) })
	return all, errors.Join(errs...)
}

// Addrs returns the addresses of proxies.
func Addrs(all []*Proxy) (addrs []string) {
	for _, p := range all {
		addrs = append(addrs, p.Addr)
	}
	return addrs
}

// Get sends a GET to the admin listener. A status other than 200 is an error.
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
func (p *Proxy) Scrape() (Series, error) {
	_, text, err := p.Get("/metrics")
	if err != nil {
		return nil, err
	}
	return ReadSeries(string(text))
}

// Said returns the last of what the process printed.
func (p *Proxy) Said() string {
	b, _ := os.ReadFile(p.log)
	return p.Lines() + string(b[max(0, len(b)-8<<10):])
}

// Peer is another proxy, or any program with one configuration file.
type Peer struct {
	Program string
	Args    []string // before the name of the file
	Config  string   // with {listen} ({host}, {port}), {upstream} and {dir}, a new directory
	Listen  string   // "" means a new address
	Now     bool     // StartPeer does not wait until it accepts connections
}

// Redis is a redis-server or valkey-server that keeps nothing on disk.
func Redis(program string) Peer {
	return Peer{Program: program, Config: "bind {host}\nport {port}\ndir {dir}\nsave \"\"\nappendonly no\nmaxmemory 64mb\n"}
}

// StartPeer starts a peer in front of an upstream address and waits until it accepts connections.
func (b *Bed) StartPeer(p Peer, upstream string, cores []int) (*Proxy, error) {
	dir, own := b.TempDir(), cmp.Or(p.Listen, OwnAddresses(1)[0])
	host, port, _ := strings.Cut(own, ":")
	text := strings.NewReplacer("{listen}", own, "{host}", host, "{port}", port, "{upstream}", upstream, "{dir}", dir).Replace(p.Config)
	if err := os.WriteFile(dir+"/config", []byte(text), 0o644); err != nil {
		return nil, err
	}
	args := append(slices.Clone(p.Args), dir+"/config")
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "{dir}", dir)
	}
	cmd := exec.Command(p.Program, args...)
	cmd.Env = environ()
	proxy := &Proxy{Addr: own}
	if err := pinned(cores, func() (err error) { proxy.Child, err = Start(cmd, nil); return err }); err != nil {
		return nil, err
	}
	b.Later(proxy.End)
	if p.Now {
		return proxy, nil
	}
	if err := proxy.AwaitPort(proxy.Addr); err != nil {
		return nil, fmt.Errorf("%s: %w; it said:\n%s", p.Program, err, proxy.Lines())
	}
	return proxy, nil
}
