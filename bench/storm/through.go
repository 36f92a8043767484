package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/retryproxy/retryproxy/bench/internal/process"
)

// between is what stands between clients and server: processes, where clients
// connect, and where metrics are.
type between struct {
	children []*process.Child
	addrs    []string
	admins   []string // of retryproxy
	dir      string   // removed at the end
}

// startBetween starts what the way needs.
func startBetween(way string, o *options, server string) (*between, error) {
	b := &between{}
	var err error
	switch way {
	case "direct":
		b.addrs = []string{server}
	case "retryproxy":
		err = b.startProxies(o, server)
	default:
		err = b.startHAProxy(way, o, server)
	}
	if err != nil {
		b.end()
		return nil, err
	}
	return b, nil
}

// startProxies starts retryproxy with its default settings.
func (b *between) startProxies(o *options, server string) error {
	for range o.proxies {
		free, err := process.FreeAddresses(2)
		if err != nil {
			return err
		}
		cmd := exec.Command(o.proxy)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
			"RETRYPROXY_LISTEN=" + free[0], "RETRYPROXY_ADMIN_LISTEN=" + free[1], "RETRYPROXY_UPSTREAM=http://" + server}
		if err := b.add(cmd, free[0]); err != nil {
			return err
		}
		b.admins = append(b.admins, free[1])
	}
	return nil
}

// startHAProxy starts HAProxy with one of two configurations.
func (b *between) startHAProxy(way string, o *options, server string) error {
	free, err := process.FreeAddresses(1)
	if err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "storm"); err != nil {
		return err
	}
	file := filepath.Join(b.dir, "haproxy.cfg")
	if err := os.WriteFile(file, []byte(haproxyConfig(way, o, free[0], server)), 0o600); err != nil {
		return err
	}
	return b.add(exec.Command(o.haproxy, "-db", "-q", "-f", file), free[0])
}

// haproxyConfig is the configuration of a way: haproxy-retry retries all that
// HAProxy can repeat; haproxy-tuned has a limit that fits the server besides.
func haproxyConfig(way string, o *options, listen, server string) string {
	lines := []string{
		"global", "  maxconn 8000",
		"defaults", "  mode http", "  timeout connect 3s", "  timeout client 60s", "  timeout server 30s", "  timeout http-keep-alive 60s",
		"  retries 3", "  option redispatch", "  retry-on all-retryable-errors",
	}
	if o.abort {
		lines = append(lines, "  option abortonclose")
	}
	limit := ""
	if way == "haproxy-tuned" {
		lines = append(lines, "  timeout queue "+fmt.Sprintf("%dms", o.queueFor.Milliseconds()))
		limit = fmt.Sprintf(" maxconn %d", o.maxconn)
	}
	lines = append(lines, "listen storm", "  bind "+listen, "  server s1 "+server+limit, "")
	return strings.Join(lines, "\n")
}

// add starts a process and waits until clients can connect.
func (b *between) add(cmd *exec.Cmd, addr string) error {
	c, err := process.Start(cmd, nil)
	if err != nil {
		return err
	}
	b.children = append(b.children, c)
	if err := c.AwaitPort(addr); err != nil {
		return fmt.Errorf("%s: %w; it said:\n%s", cmd.Path, err, c.Lines())
	}
	b.addrs = append(b.addrs, addr)
	return nil
}

// alive names a process that has ended though it should not.
func (b *between) alive() error {
	for _, c := range b.children {
		select {
		case <-c.Exited:
			return fmt.Errorf("%s ended in the middle of the run; it said:\n%s", c.Cmd.Path, c.Lines())
		default:
		}
	}
	return nil
}

func (b *between) end() {
	for _, c := range b.children {
		c.Kill()
	}
	if b.dir != "" {
		_ = os.RemoveAll(b.dir)
	}
}
