package upstream

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// endpointNames are the endpoints of one upstream, a list. Each has a certificate for its own name alone.
var endpointNames = []string{"a.test", "b.test"}

// namedEndpoints are servers for endpointNames. They remember what each was asked for.
type namedEndpoints struct {
	list string // for ParseTarget
	dir  string // of the authority

	mu    sync.Mutex
	asked []string // "name path" of each request
	wrong []string // requests for a host or a server name that is not the endpoint's
}

// serveNames serves each name with handle, which says the status of the nth request of all.
func serveNames(t *testing.T, scheme string, handle func(r *http.Request, name string, n int) int) *namedEndpoints {
	a := peers.NewAuthority(t)
	e := &namedEndpoints{dir: a.Dir}
	var targets []string
	for _, name := range endpointNames {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		host := name + ":" + port
		targets = append(targets, scheme+"://"+host)
		s := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			e.mu.Lock()
			e.asked = append(e.asked, name+" "+r.URL.Path)
			if r.Host != host || r.TLS != nil && r.TLS.ServerName != name {
				e.wrong = append(e.wrong, fmt.Sprintf("%s got %s for %s", name, r.URL.Path, r.Host))
			}
			n := len(e.asked)
			e.mu.Unlock()
			w.WriteHeader(handle(r, name, n))
		})}
		s.Protocols.SetHTTP1(scheme == "http")
		s.Protocols.SetUnencryptedHTTP2(scheme == "h2c")
		s.Protocols.SetHTTP2(scheme == "https")
		if scheme == "https" {
			pair, err := tls.LoadX509KeyPair(a.Issue(t, name))
			if err != nil {
				t.Fatal(err)
			}
			s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}}
			go func() { _ = s.ServeTLS(l, "", "") }()
		} else {
			go func() { _ = s.Serve(l) }()
		}
		t.Cleanup(func() { _ = s.Close() })
	}
	e.list = strings.Join(targets, ",")
	return e
}

// proxy starts a proxy in front of the endpoints, one after the other.
func (e *namedEndpoints) proxy(t *testing.T, change func(c *proxy.Config)) *proxytest.Proxy {
	return proxytest.StartTo(t, e.list, func(c *proxy.Config) {
		up := &c.Default.Upstream
		if up.TLS != nil {
			if err := up.UseTLS(upstream.TLSFiles{CA: e.dir + "/ca.pem"}); err != nil {
				t.Fatal(err)
			}
		}
		up.Resolve = func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
		c.Default.Forward = forward.Settings{Host: forward.HostRule{Mode: forward.HostUpstream}, UpstreamHost: up.Host, HostVaries: !up.OneHost()}
		c.Default.Balance.RoundRobin = true
		if change != nil {
			change(c)
		}
	})
}

// want checks that both endpoints were asked for path, and each under its own name only.
func (e *namedEndpoints) want(t *testing.T, path string) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range endpointNames {
		if !strings.Contains(strings.Join(e.asked, ","), name+" "+path) {
			t.Errorf("%s was not asked for %s, only %q", name, path, e.asked)
		}
	}
	if len(e.wrong) > 0 {
		t.Error(e.wrong)
	}
}

func TestEveryEndpointGetsItsOwnHost(t *testing.T) {
	for _, scheme := range []string{"http", "h2c", "https"} {
		t.Run(scheme+" retry", func(t *testing.T) {
			e := serveNames(t, scheme, func(_ *http.Request, _ string, n int) int { return []int{200, 503}[n%2] })
			p := e.proxy(t, nil)
			for range 4 { // each fails on one endpoint, and is served by the other
				p.Dial().Send(peers.Get("/retried")).Want(200, "")
			}
			e.want(t, "/retried")
		})
		t.Run(scheme+" hedge", func(t *testing.T) {
			second := make(chan struct{})
			e := serveNames(t, scheme, func(r *http.Request, _ string, n int) int {
				if n == 1 {
					select {
					case <-second:
					case <-r.Context().Done():
					}
				} else if n == 2 {
					close(second)
				}
				return 200
			})
			e.proxy(t, peers.Hedged(t)).Dial().Send(peers.Get("/hedged")).Want(200, "")
			e.want(t, "/hedged")
		})
	}
}

// A Host that was set by hand, or is the client's, is the same for all endpoints.
func TestAHostSetByHandIsThatOfAllEndpoints(t *testing.T) {
	for want, rule := range map[string]forward.HostRule{"set.test": {Name: "set.test"}, "client.test": {Mode: forward.HostPreserve}} {
		e := serveNames(t, "http", func(r *http.Request, _ string, _ int) int {
			if r.Host != want {
				t.Errorf("Host %s, want %s", r.Host, want)
			}
			return 200
		})
		p := e.proxy(t, func(c *proxy.Config) { c.Default.Forward.Host = rule })
		for range 4 {
			p.Dial().Send(peers.RequestText("GET / HTTP/1.1", "Host: client.test")).Want(200, "")
		}
	}
}

// A probe and a health check ask each endpoint under its own name too.
func TestEveryEndpointIsProbedUnderItsOwnHost(t *testing.T) {
	e := serveNames(t, "http", func(r *http.Request, _ string, _ int) int {
		if r.URL.Path == "/" {
			panic(http.ErrAbortHandler) // ends the connection
		}
		return 503
	})
	p := e.proxy(t, func(c *proxy.Config) {
		c.Default.Guard = breaker.Options{}
		c.Default.Probe = admission.Probe{Path: "/probed"}
		c.Default.HealthCheck = upstream.HealthCheck{Path: "/checked", Interval: 50 * time.Millisecond}
	})
	for range 10 {
		p.Dial().Send(peers.Get("/"))
	}
	peers.Soon(t, "both endpoints were probed", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		all := strings.Join(e.asked, ",")
		return strings.Contains(all, "a.test /probed") && strings.Contains(all, "b.test /probed")
	})
	e.want(t, "/probed")
	e.want(t, "/checked")
}
