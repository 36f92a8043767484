package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"testing"

	"github.com/retryproxy/retryproxy/proxy/internal/peers"
)

// The response to a client whose request was not read has the body that clients of a language model's API read. So
// has the one to a client that speaks no TLS.
func TestOwnErrorsOfAModelAPIBeforeARequest(t *testing.T) {
	p := startProxy(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *Config) {
		c.Default.ModelAPI = true
		c.TLS = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, io.EOF }}
	})
	check := func(res *http.Response, text string, status int) {
		t.Helper()
		e := peers.CheckModelError(t, status, text)
		if id := res.Header.Get("X-Request-Id"); id == "" || id != res.Header.Get("Request-Id") || id != e.RequestID || res.StatusCode != status || !res.Close {
			t.Errorf("%v %s", res, text)
		}
	}
	res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(p.noRoom())), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil || res.ContentLength != int64(len(body)) || res.Header.Get("Retry-After") != "1" {
		t.Errorf("%v %v", res, err)
	}
	check(res, string(body), 503)
	res, text, err := p.Dial().Send(peers.Get("/")).Response("GET")
	if err != nil {
		t.Fatal(err)
	}
	check(res, text, 400)
}
