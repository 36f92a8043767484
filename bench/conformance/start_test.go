package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// proxy is a proxy program in front of an origin.
type proxy struct {
	addr   string
	origin *origin
}

// start runs retryproxy with nothing that depends on what came before.
func start(t *testing.T, binary string) *proxy {
	t.Helper()
	return run(t, func(addr, upstream string) *exec.Cmd {
		cmd := exec.Command(binary)
		cmd.Env = []string{"RETRYPROXY_LISTEN=" + addr, "RETRYPROXY_UPSTREAM=http://" + upstream, "RETRYPROXY_ADMIN_LISTEN=off",
			"RETRYPROXY_UPSTREAM_HOST=preserve", "RETRYPROXY_MAX_RETRIES=0", "RETRYPROXY_BREAKER=off", "RETRYPROXY_CONCURRENCY_LIMIT=off"}
		return cmd
	})
}

func startHAProxy(t *testing.T, program string) *proxy {
	t.Helper()
	return run(t, func(addr, upstream string) *exec.Cmd {
		return exec.Command(program, "-db", "-f", write(t, "haproxy.cfg", fmt.Sprintf(`
defaults
  mode http
  timeout connect 3s
  timeout client 10s
  timeout server 10s
listen all
  bind %s
  server one %s
`, addr, upstream)))
	})
}

func startNginx(t *testing.T, program string) *proxy {
	t.Helper()
	return run(t, func(addr, upstream string) *exec.Cmd {
		dir := t.TempDir()
		return exec.Command(program, "-p", dir, "-e", "stderr", "-c", write(t, "nginx.conf", fmt.Sprintf(`
daemon off; master_process off; pid %[1]s/pid;
events {}
http {
  access_log off; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
  server { listen %[2]s; location / { proxy_pass http://%[3]s; proxy_http_version 1.1; proxy_set_header Host $http_host; proxy_set_header Connection ""; proxy_request_buffering off; } }
}
`, dir, addr, upstream)))
	})
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func run(t *testing.T, command func(addr, upstream string) *exec.Cmd) *proxy {
	t.Helper()
	bed := &rig.Bed{}
	t.Cleanup(bed.End)
	o := newOrigin(bed)
	free := rig.FreeAddresses(1)
	child, err := rig.Start(command(free[0], o.addr), nil)
	if err == nil {
		t.Cleanup(child.End)
		err = child.AwaitPort(free[0])
	}
	if err != nil {
		t.Fatal(err)
	}
	return &proxy{free[0], o}
}
