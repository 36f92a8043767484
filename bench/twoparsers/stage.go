package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/retryproxy/retryproxy/bench/internal/process"
)

// reader is a server that reads requests, and the origin that says how.
type reader struct {
	name   string
	addr   string
	origin *origin
}

// stage is all that runs.
type stage struct {
	proxyAddr string
	recorder  *recorder
	readers   []*reader
	children  []*process.Child
	dir       string
}

// startStage starts everything, or nothing.
func startStage(program string) (s *stage, err error) {
	s = &stage{}
	defer func() {
		if err != nil {
			s.end()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "twoparsers"); err != nil {
		return s, err
	}
	free, err := process.OwnAddresses(3)
	if err != nil {
		return s, err
	}
	if s.recorder, err = newRecorder(); err != nil {
		return s, err
	}
	s.proxyAddr = free[0]
	cmd := exec.Command(program)
	cmd.Env = []string{"RETRYPROXY_LISTEN=" + free[0], "RETRYPROXY_UPSTREAM=http://" + s.recorder.Addr().String(), "RETRYPROXY_ADMIN_LISTEN=off", "RETRYPROXY_UPSTREAM_HOST=preserve",
		"RETRYPROXY_MAX_RETRIES=0", "RETRYPROXY_BREAKER=off", "RETRYPROXY_CONCURRENCY_LIMIT=off", "RETRYPROXY_LOG_LEVEL=error"}
	if err = s.start(cmd, free[0]); err != nil {
		return s, err
	}
	direct, err := newOrigin(false)
	if err != nil {
		return s, err
	}
	s.readers = append(s.readers, &reader{"net/http", direct.addr, direct})
	return s, s.startPeers(free[1], free[2])
}

func (s *stage) startPeers(nginx, haproxy string) error {
	for _, peer := range []struct{ name, addr, config string }{
		{"nginx", nginx, nginxConfig},
		{"haproxy", haproxy, haproxyConfig},
	} {
		o, err := newOrigin(true)
		if err != nil {
			return err
		}
		path := filepath.Join(s.dir, peer.name+".cfg")
		if err := os.WriteFile(path, fmt.Appendf(nil, peer.config, peer.addr, o.addr, s.dir, streamField), 0o600); err != nil {
			return err
		}
		cmd := exec.Command(peer.name, "-p", s.dir, "-e", "stderr", "-c", path)
		if peer.name == "haproxy" {
			cmd = exec.Command(peer.name, "-db", "-f", path)
		}
		cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin"}
		if err := s.start(cmd, peer.addr); err != nil {
			return err
		}
		s.readers = append(s.readers, &reader{peer.name, peer.addr, o})
	}
	return nil
}

func (s *stage) start(cmd *exec.Cmd, addr string) error {
	child, err := process.Start(cmd, nil)
	if err != nil {
		return err
	}
	s.children = append(s.children, child)
	if err := child.AwaitPort(addr); err != nil {
		return fmt.Errorf("%s: %w; it said:\n%s", cmd.Path, err, child.Lines())
	}
	return nil
}

func (s *stage) alive() bool {
	for _, c := range s.children {
		select {
		case <-c.Exited:
			return false
		default:
		}
	}
	return true
}

func (s *stage) lines() (all string) {
	for _, c := range s.children {
		all += c.Lines() + "\n"
	}
	return all
}

func (s *stage) end() {
	for _, c := range s.children {
		c.End()
	}
	for _, r := range s.readers {
		_ = r.origin.server.Close()
	}
	if s.recorder != nil {
		_ = s.recorder.Close()
	}
	_ = os.RemoveAll(s.dir)
}

// Both pass everything on as they read it, and refuse as little as they can.
// %[1]s: their address, %[2]s: the origin's, %[3]s: a directory, %[4]s: streamField.
const nginxConfig = `
daemon off; master_process off; pid %[3]s/pid;
events { worker_connections 1024; }
http {
  access_log off; client_body_temp_path %[3]s/b; proxy_temp_path %[3]s/p; fastcgi_temp_path %[3]s/f; uwsgi_temp_path %[3]s/u; scgi_temp_path %[3]s/s;
  merge_slashes off; large_client_header_buffers 8 256k; client_max_body_size 0; client_body_buffer_size 1m; keepalive_requests 100000; lingering_time 1s; lingering_timeout 200ms;
  server { listen %[1]s; location / {
    proxy_pass http://%[2]s; proxy_http_version 1.1; proxy_set_header Host $http_host; proxy_set_header Connection ""; proxy_set_header %[4]s $remote_port; proxy_ignore_client_abort on;
  } }
}
`

const haproxyConfig = `
global
  tune.bufsize 262144
  tune.http.maxhdr 1000
defaults
  mode http
  timeout connect 3s
  timeout client 10s
  timeout server 10s
listen all
  bind %[1]s
  http-request set-header %[4]s %%[src_port]
  server one %[2]s
`
