package conformance

import (
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
	return startWith(t, func(bed *rig.Bed, upstream string) (*rig.Proxy, error) {
		return bed.Start(t.Context(), rig.Spec{Program: binary, Upstream: "http://" + upstream, Env: []string{
			"RETRYPROXY_UPSTREAM_HOST=preserve", "RETRYPROXY_MAX_RETRIES=0", "RETRYPROXY_BREAKER=off", "RETRYPROXY_CONCURRENCY_LIMIT=off"}})
	})
}

func startHAProxy(t *testing.T, program string) *proxy {
	t.Helper()
	return startPeer(t, rig.Peer{Program: program, Args: []string{"-db", "-f"}, Config: `
defaults
  mode http
  timeout connect 3s
  timeout client 10s
  timeout server 10s
listen all
  bind {listen}
  server one {upstream}
`})
}

func startNginx(t *testing.T, program string) *proxy {
	t.Helper()
	return startPeer(t, rig.Peer{Program: program, Args: []string{"-p", "{dir}", "-e", "stderr", "-c"}, Config: `
daemon off; master_process off; pid {dir}/pid;
events {}
http {
  access_log off; client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
  server { listen {listen}; location / { proxy_pass http://{upstream}; proxy_http_version 1.1; proxy_set_header Host $http_host; proxy_set_header Connection ""; proxy_request_buffering off; } }
}
`})
}

func startPeer(t *testing.T, p rig.Peer) *proxy {
	t.Helper()
	return startWith(t, func(bed *rig.Bed, upstream string) (*rig.Proxy, error) { return bed.StartPeer(p, upstream, nil) })
}

func startWith(t *testing.T, start func(bed *rig.Bed, upstream string) (*rig.Proxy, error)) *proxy {
	t.Helper()
	bed := &rig.Bed{}
	t.Cleanup(bed.End)
	o := newOrigin(bed)
	p, err := start(bed, o.addr)
	if err != nil {
		t.Fatal(err)
	}
	return &proxy{p.Addr, o}
}
