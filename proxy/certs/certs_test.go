package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// pair writes a self-signed certificate and its key.
func pair(t *testing.T, notAfter time.Time) (cert, key string) {
	t.Helper()
	private, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: notAfter}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, _ := x509.MarshalPKCS8PrivateKey(private)
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write(t, cert, "CERTIFICATE", der)
	write(t, key, "PRIVATE KEY", pkcs)
	return cert, key
}

func write(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLoadGivesWhatTheFilesHold(t *testing.T) {
	end := time.Now().Add(time.Hour).Truncate(time.Second)
	cert, key := pair(t, end)
	c, err := Load(Files{Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if at, ok := Expiry(c); !ok || !at.Equal(end) {
		t.Errorf("expiry %v %v, want %v", at, ok, end)
	}
	if c.ClientAuth != tls.NoClientCert || c.MinVersion != tls.VersionTLS12 {
		t.Errorf("client auth %v, least version %x", c.ClientAuth, c.MinVersion)
	}
	if c, err = Load(Files{Cert: cert, Key: key, ClientCA: cert}); err != nil || c.ClientAuth != tls.RequireAndVerifyClientCert || c.ClientCAs == nil {
		t.Errorf("with an authority: %+v %v", c, err)
	}
}

func TestLoadNamesTheFileThatIsWrong(t *testing.T) {
	cert, key := pair(t, time.Now())
	_, otherKey := pair(t, time.Now())
	for name, tc := range map[string]struct {
		files Files
		want  string
	}{
		"no key":               {Files{Cert: cert}, "both"},
		"no certificate":       {Files{Key: key}, "both"},
		"missing file":         {Files{Cert: cert + "x", Key: key}, cert + "x"},
		"not of each other":    {Files{Cert: cert, Key: otherKey}, otherKey},
		"missing authority":    {Files{Cert: cert, Key: key, ClientCA: "/nowhere"}, "/nowhere"},
		"authority is no cert": {Files{Cert: cert, Key: key, ClientCA: key}, "no certificate"},
	} {
		if _, err := Load(tc.files); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want it to say %s", name, err, tc.want)
		}
	}
}

func TestExpiryOfNothing(t *testing.T) {
	if _, ok := Expiry(nil); ok {
		t.Error("no configuration has an end of validity")
	}
	if _, ok := Expiry(&tls.Config{}); ok {
		t.Error("a configuration without certificate has an end of validity")
	}
}
