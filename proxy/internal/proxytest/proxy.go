package proxytest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"testing"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Proxy is a proxy on loopback in front of a fake upstream.
type Proxy struct {
	*proxy.Server
	*peers.Front
	Config *proxy.Config // with which it began
	Stop   func()        // ends serving; it returns when everything has ended
	faults uint64        // that the test provoked
}

// Start runs a proxy in front of u; change may alter the configuration.
func Start(t testing.TB, u *peers.Upstream, change func(c *proxy.Config)) *Proxy {
	t.Helper()
	return StartTo(t, "http://"+u.Addr().String(), change)
}

// StartTo runs a proxy in front of the upstream at a URL.
func StartTo(t testing.TB, upstreamURL string, change func(c *proxy.Config)) *Proxy {
	t.Helper()
	seen := &peers.Recorder{}
	c := peers.NewConfig(t, upstreamURL, seen)
	if change != nil {
		change(c)
	}
	s, err := proxy.New(c)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Server: s, Config: c}
	t.Cleanup(p.checkNothingIsLeft) // after it has ended
	p.Front, p.Stop = peers.Serve(t, s, seen)
	return p
}

// checkNothingIsLeft checks that the proxy, which has ended, gave back all that its requests held.
func (p *Proxy) checkNothingIsLeft() {
	st := p.Stats()
	if n := st.RetryBufferUsed; n != 0 {
		p.T.Errorf("%d bytes of retry buffer were not given back", n)
	}
	for i := range st.Upstreams {
		peers.Soon(p.T, "all places given back, that of a probe that just dials, too", func() bool {
			g := p.Stats().Upstreams[i].Guard
			return g.InFlight-g.Abandoned == 0 && g.Queued == 0
		})
	}
	if n := st.Faults; n != p.faults {
		p.T.Errorf("%d faults of the proxy itself, want %d", n, p.faults)
	}
	if n := st.InFlight; n != 0 {
		p.T.Errorf("%d requests still count as in flight", n)
	}
}

// WantFaults checks that n faults of the proxy itself were counted, which the test provoked.
func (p *Proxy) WantFaults(n uint64) {
	p.T.Helper()
	if p.faults = n; p.Stats().Faults != n {
		p.T.Errorf("%d faults counted, want %d", p.Stats().Faults, n)
	}
}

// SecureUpstream is an upstream behind TLS for the name secure.test, and a
// proxy in front of it.
func SecureUpstream(t *testing.T, handle func(c *peers.Conn), server func(*tls.Config), files upstream.TLSFiles, change func(*proxy.Config)) (*Proxy, *peers.Upstream) {
	t.Helper()
	a := peers.NewAuthority(t)
	pair, err := tls.LoadX509KeyPair(a.Issue(t, "secure.test"))
	if err != nil {
		t.Fatal(err)
	}
	conf := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}, ClientCAs: x509.NewCertPool()}
	conf.ClientCAs.AddCert(a.Cert)
	if server != nil {
		server(conf)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := peers.ServeListener(t, tls.NewListener(l, conf), handle)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if files.Cert != "" {
		files.Cert, _ = a.Issue(t, files.Cert)
	}
	if files.CA == "" {
		files.CA = a.Dir + "/ca.pem"
	}
	return StartTo(t, "https://secure.test:"+port, func(c *proxy.Config) {
		if err := c.Default.Upstream.UseTLS(files); err != nil {
			t.Fatal(err)
		}
		c.Default.Upstream.Resolve = func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
		if change != nil {
			change(c)
		}
	}), u
}

// Guard is the state of the default upstream's breaker and concurrency limit.
func (p *Proxy) Guard() breaker.GuardState { return p.Stats().Upstreams[0].Guard }

// StartFor is peers.StartUpstream and Start over TCP or a unix socket.
func StartFor(t *testing.T, unix bool, handle func(c *peers.Conn), change func(*proxy.Config)) (*Proxy, *peers.Upstream) {
	t.Helper()
	if !unix {
		u := peers.StartUpstream(t, handle)
		return Start(t, u, change), u
	}
	path := t.TempDir() + "/up.sock"
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	u := peers.ServeListener(t, l, handle)
	return StartTo(t, "unix:"+path, change), u
}

// Addresses is a summary of the default upstream's endpoints.
func (p *Proxy) Addresses() upstream.EndpointSummary { return p.Stats().Upstreams[0].Addresses }
