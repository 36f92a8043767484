package peers

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/proxy/certs"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// Authority signs the certificates of a test.
type Authority struct {
	Dir  string
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority with a key of its own.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{Dir: t.TempDir()}
	a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.Cert, _ = x509.ParseCertificate(der)
	a.write(t, "ca.pem", "CERTIFICATE", der)
	return a
}

func (a *Authority) write(t testing.TB, name, kind string, der []byte) string {
	t.Helper()
	path := a.Dir + "/" + name
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Issue makes a certificate for name and gives the files of it and of its key.
func (a *Authority) Issue(t testing.TB, name string) (certFile, keyFile string) {
	t.Helper()
	return a.IssueSerial(t, name, 2)
}

// IssueSerial is Issue with a serial number.
func (a *Authority) IssueSerial(t testing.TB, name string, serial int64) (certFile, keyFile string) {
	t.Helper()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.Cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, _ := x509.MarshalPKCS8PrivateKey(key)
	return a.write(t, name+".pem", "CERTIFICATE", der), a.write(t, name+".key", "PRIVATE KEY", private)
}

// ClientsOverTLS makes c's clients connect over TLS with a certificate for proxy.test, and with
// one of their own if required.
func (a *Authority) ClientsOverTLS(t *testing.T, c *settings.Config, clients bool) {
	t.Helper()
	var f certs.Files
	f.Cert, _ = a.Issue(t, "proxy.test")
	if clients {
		f.ClientCA = a.Dir + "/ca.pem"
	}
	conf, err := certs.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	c.TLS = conf
}

// Client returns the TLS configuration of a client of proxy.test that trusts the authority.
func (a *Authority) Client() *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(a.Cert)
	return &tls.Config{RootCAs: roots, ServerName: "proxy.test"}
}

// DialTLS opens a client's connection over TLS; the handshake is done.
func (p *Front) DialTLS(conf *tls.Config) *Client {
	p.T.Helper()
	c := p.Dial()
	tc := tls.Client(c.Conn, conf)
	if err := tc.Handshake(); err != nil {
		p.T.Fatalf("handshake: %v", err)
	}
	return &Client{Conn: tc, Reader: bufio.NewReader(tc), T: p.T}
}
