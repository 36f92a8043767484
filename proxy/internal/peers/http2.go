package peers

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"

	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// SpeakHTTP2 lets clients come by HTTP/2.
func SpeakHTTP2(c *settings.Config) { c.MaxConcurrentStreams = 128 }

// HTTP2Client is a client that speaks HTTP/2 only, over TLS where conf is not nil.
func HTTP2Client(t testing.TB, conf *tls.Config) *http.Client {
	tr := &http.Transport{Protocols: new(http.Protocols), DisableCompression: true}
	if conf == nil {
		tr.Protocols.SetUnencryptedHTTP2(true)
	} else {
		tr.Protocols.SetHTTP2(true)
		tr.TLSClientConfig = conf
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: Patience}
}

// Fetch sends a request over HTTP/2 and reads the response.
func (p *Front) Fetch(client *http.Client, method, path string, body io.Reader) (*http.Response, string) {
	p.T.Helper()
	req, err := http.NewRequest(method, "http://"+p.Addr+path, body)
	if err != nil {
		p.T.Fatal(err)
	}
	return p.fetch(client, req)
}

// fetch sends req and reads the response.
func (p *Front) fetch(client *http.Client, req *http.Request) (*http.Response, string) {
	p.T.Helper()
	res, err := client.Do(req)
	if err != nil {
		p.T.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		p.T.Fatalf("body: %v after %q", err, b)
	}
	return res, string(b)
}

// GetAtOnce sends n GETs at once, and waits until each has its 200.
func (p *Front) GetAtOnce(client *http.Client, n int) {
	p.T.Helper()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if res, err := client.Get("http://" + p.Addr + "/"); err != nil || res.StatusCode != 200 {
				p.T.Error(res, err)
			} else {
				_ = res.Body.Close()
			}
		})
	}
	all.Wait()
}

// HTTP2Server runs h as an upstream that speaks HTTP/2, and HTTP/1.1 where
// both is set. It gives its address; conf nil: no TLS.
func HTTP2Server(t testing.TB, conf *tls.Config, both bool, h http.HandlerFunc) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, Protocols: new(http.Protocols), TLSConfig: conf, DisableGeneralOptionsHandler: true}
	s.Protocols.SetHTTP1(both)
	s.Protocols.SetHTTP2(conf != nil)
	s.Protocols.SetUnencryptedHTTP2(conf == nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if conf == nil {
			_ = s.Serve(l)
		} else {
			_ = s.ServeTLS(l, "", "")
		}
	}()
	t.Cleanup(func() { _ = s.Close(); <-ended })
	return l.Addr().String()
}

// SecureHTTP2Server is HTTP2Server over TLS for the name secure.test, and a
// change of a proxy's configuration that finds and trusts it.
func SecureHTTP2Server(t testing.TB, both bool, h http.HandlerFunc) (port string, trust func(*settings.Config)) {
	t.Helper()
	a := NewAuthority(t)
	pair, err := tls.LoadX509KeyPair(a.Issue(t, "secure.test"))
	if err != nil {
		t.Fatal(err)
	}
	addr := HTTP2Server(t, &tls.Config{Certificates: []tls.Certificate{pair}}, both, h)
	_, port, _ = net.SplitHostPort(addr)
	return port, func(c *settings.Config) {
		if err := c.Default.Upstream.UseTLS(upstream.TLSFiles{CA: a.Dir + "/ca.pem"}); err != nil {
			t.Fatal(err)
		}
		c.Default.Upstream.Resolve = func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
	}
}
