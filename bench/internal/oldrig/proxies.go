package oldrig

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	"github.com/retryproxy/retryproxy/bench/internal/process"
)

// Spec says how a proxy is started.
type Spec struct {
	Upstream string   // its address
	Cores    []int    // the proxy's
	Program  string   // of retryproxy
	Env      []string // more settings of retryproxy
	Admin    string   // where StartMany finds the admin listener of a single process; "": at an address of its own
	By       []string // command line by way of which retryproxy is started, in the end by exec; nil: none
}

// The proxies that can be compared.
const (
	HAProxy    = "haproxy"
	Nginx      = "nginx"
	Retryproxy = "retryproxy"
)

// Need names the Debian packages of programs that are missing.
func Need(programs ...string) error {
	var missing []string
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			missing = append(missing, p)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("not installed: %s; on Debian: apt-get install %s", strings.Join(missing, ", "), strings.Join(missing, " "))
	}
	return nil
}

// StartProxy starts one of them and waits until it accepts.
func StartProxy(name string, s *Spec) (*Process, error) {
	return startListening(func(addr string) (*command, error) { return s.command(name, addr) })
}

// StartMany starts n processes of retryproxy at once, each with an admin
// listener of its own, and waits until all accept on both. On an error none is left.
func StartMany(s *Spec, n int) ([]*Process, error) {
	free, err := process.OwnAddresses(2 * n) // all at once, so that no two are the same
	if err != nil {
		return nil, err
	}
	all, errs := make([]*Process, n), make([]error, n)
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() {
			one := *s
			admin := cmp.Or(s.Admin, free[n+i])
			one.Env = append([]string{"RETRYPROXY_ADMIN_LISTEN=" + admin}, s.Env...)
			all[i], errs[i] = one.ours(free[i]).listen(free[i], admin)
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		EndAll(all)
		return nil, err
	}
	return all, nil
}

// EndAll kills processes that keep nothing; nil ones are left out.
func EndAll(all []*Process) {
	for _, p := range all {
		if p != nil {
			p.Kill()
		}
	}
}

// command is how a proxy is started on an address.
func (s *Spec) command(name, addr string) (*command, error) {
	switch name {
	case HAProxy:
		return s.configured(haproxyConfig, addr, "haproxy", "-db", "-q", "-f")
	case Nginx:
		return s.configured(nginxConfig, addr, "nginx", "-c")
	case Retryproxy:
		return s.ours(addr), nil
	}
	return nil, fmt.Errorf("no proxy is called %q", name)
}

// ours is retryproxy with its default settings.
func (s *Spec) ours(addr string) *command {
	env := append(cleanEnviron(), "RETRYPROXY_LISTEN="+addr, "RETRYPROXY_ADMIN_LISTEN=127.0.0.1:0", "RETRYPROXY_UPSTREAM=http://"+s.Upstream)
	if len(s.Cores) > 0 {
		env = append(env, "GOMAXPROCS="+strconv.Itoa(len(s.Cores)))
	}
	return &command{path: s.Program, by: s.By, environ: append(env, s.Env...), cores: s.Cores}
}

func (s *Spec) configured(config func(s *Spec, addr, dir string) string, addr, program string, args ...string) (*command, error) {
	f, err := tempFile("config", "")
	if err == nil {
		err = f.write(config(s, addr, f.dir))
	}
	if err != nil {
		return nil, err
	}
	return &command{path: program, args: append(args, f.path), environ: cleanEnviron(), cores: s.Cores, dir: f.dir}, nil
}

// haproxyConfig retries what HAProxy can repeat, reuses connections, and says
// who asked, as retryproxy does by default.
func haproxyConfig(s *Spec, addr, _ string) string {
	return fmt.Sprintf(`global
  nbthread %d
  maxconn 9950
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 60s
  option forwardfor
  retries 3
  retry-on conn-failure empty-response response-timeout 500 502 503 504
  http-reuse always
frontend f
  bind %s backlog 8192
  default_backend b
backend b
  server s1 %s
`, max(1, len(s.Cores)), addr, s.Upstream)
}

// nginxConfig names the upstream twice, since nginx retries only to another server.
func nginxConfig(s *Spec, addr, dir string) string {
	host, port, _ := net.SplitHostPort(addr)
	return fmt.Sprintf(`worker_processes %d; daemon off; pid %[2]s/pid; error_log %[2]s/errors error;
events { worker_connections 32768; }
http { access_log off; keepalive_requests 1000000000; keepalive_timeout 600s; client_body_buffer_size 1m;
  client_body_temp_path %[2]s/bodies; proxy_temp_path %[2]s/answers; client_max_body_size 100m;
  upstream up { server %[3]s max_fails=0; server %[3]s max_fails=0; keepalive 512; keepalive_requests 1000000000; }
  server { listen %[4]s:%[5]s backlog=8192;
    location / { proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_next_upstream error timeout http_500 http_502 http_503 http_504 http_429; proxy_next_upstream_tries 4; }
  } }
`, max(1, len(s.Cores)), dir, s.Upstream, host, port)
}
