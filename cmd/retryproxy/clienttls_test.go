package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// selfSigned writes a certificate for loopback and its key to dir, replacing existing ones.
func selfSigned(t *testing.T, dir string, serial int64) (cert, key string) {
	t.Helper()
	private, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, _ := x509.MarshalPKCS8PrivateKey(private)
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for name, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs}} {
		if err := os.WriteFile(name+".new", pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(name+".new", name); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// shown returns the serial number of the certificate that clients get.
func (p *process) shown() int64 {
	c, err := tls.Dial("tcp", p.listen[0], &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return 0
	}
	defer c.Close() //nolint:errcheck // only a test
	return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

func TestClientsMeetTheCertificateThatTheFilesHoldNow(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("X-Forwarded-Proto"))
	}))
	defer upstream.Close()
	dir := t.TempDir()
	cert, _ := selfSigned(t, dir, 11)
	p := startProxy(t, "UPSTREAM="+upstream.URL, "TLS_CERT="+cert)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	response, err := client.Get("https://" + p.listen[0] + "/")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if string(body) != "https" {
		t.Errorf("the upstream was told that the client used %q", body)
	}
	if n := p.shown(); n != 11 {
		t.Fatalf("certificate %d, want 11", n)
	}
	if v := p.metric(fmt.Sprintf("retryproxy_certificate_expiry_timestamp_seconds{kind=\"listener\",name=%q}", cert)); v == "" {
		t.Error("no metric of the certificate's end")
	}
	selfSigned(t, dir, 12)
	p.await("new certificate", func() bool { return p.shown() == 12 })
	if err := os.WriteFile(cert, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.await("refusal of the broken file", func() bool { return p.metric("retryproxy_config_last_reload_successful") == "0" })
	if n := p.shown(); n != 12 {
		t.Errorf("with a broken file certificate %d, want 12 still", n)
	}
}

// A certificate and a key whose names have nothing in common, as certbot writes them: the process
// follows both files.
func TestTheKeyMayHaveAFileOfItsOwn(t *testing.T) {
	upstream := httptest.NewServer(http.NotFoundHandler())
	defer upstream.Close()
	cert, key := filepath.Join(t.TempDir(), "fullchain.pem"), filepath.Join(t.TempDir(), "privkey.pem")
	renew := func(serial int64, move func(newCert, newKey string)) { move(selfSigned(t, t.TempDir(), serial)) }
	to := func(from, to string) {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	renew(11, func(newCert, newKey string) { to(newCert, cert); to(newKey, key) })
	p := startProxy(t, "UPSTREAM="+upstream.URL, "TLS_CERT="+cert, "TLS_KEY="+key)
	if n := p.shown(); n != 11 {
		t.Fatalf("certificate %d, want 11", n)
	}
	renew(12, func(newCert, newKey string) {
		to(newCert, cert)
		p.await("refusal of a certificate with the old key", func() bool { return p.metric("retryproxy_config_last_reload_successful") == "0" })
		if n := p.shown(); n != 11 {
			t.Errorf("with a certificate that the key does not fit %d, want 11 still", n)
		}
		to(newKey, key) // only the key's file changes now
	})
	p.await("new certificate", func() bool { return p.shown() == 12 })
}
