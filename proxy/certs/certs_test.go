package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
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
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
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
	cert, _ := pair(t, end)
	c, err := Load(Files{Cert: cert})
	if err != nil {
		t.Fatal(err)
	}
	if at, ok := Expiry(c); !ok || !at.Equal(end) {
		t.Errorf("expiry %v %v, want %v", at, ok, end)
	}
	if c.ClientAuth != tls.NoClientCert || c.MinVersion != tls.VersionTLS12 {
		t.Errorf("client auth %v, least version %x", c.ClientAuth, c.MinVersion)
	}
	if c, err = Load(Files{Cert: cert, ClientCA: cert}); err != nil || c.ClientAuth != tls.RequireAndVerifyClientCert || c.ClientCAs == nil {
		t.Errorf("with an authority: %+v %v", c, err)
	}
}

func TestLoadNamesTheFileThatIsWrong(t *testing.T) {
	_, key := pair(t, time.Now())
	lone, missing := pair(t, time.Now())
	other, otherKey := pair(t, time.Now())
	rename(t, key, otherKey) // now it is not that of other
	lone2, key2 := pair(t, time.Now())
	if err := os.Remove(missing); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		files Files
		want  string
	}{
		"no key":               {Files{Cert: lone}, "the certificate's file has no key, and the key's file cannot be read: open " + missing},
		"missing file":         {Files{Cert: other + "x"}, other + "x"},
		"not of each other":    {Files{Cert: other}, otherKey},
		"missing authority":    {Files{Cert: lone2, ClientCA: "/nowhere"}, "/nowhere"},
		"authority is no cert": {Files{Cert: lone2, ClientCA: key2}, "no certificate"},
	} {
		if _, err := Load(tc.files); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want it to say %s", name, err, tc.want)
		}
	}
}

func TestACertificatesFileMayHaveItsKey(t *testing.T) {
	cert, key := pair(t, time.Now())
	for name, files := range map[string][]string{"key last": {cert, key}, "key first": {key, cert}} {
		var both []byte
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			both = append(both, text...)
		}
		file := filepath.Join(t.TempDir(), "both.pem")
		if err := os.WriteFile(file, both, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(KeyFile(file), []byte("another key"), 0o600); err != nil { // is not read
			t.Fatal(err)
		}
		if pair, err := Pair(file, ""); err != nil || pair.PrivateKey == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A named key is read, even if another one is in the certificate's file or beside it.
func TestAKeyOfItsOwnFile(t *testing.T) {
	cert, beside := pair(t, time.Now())
	other, otherKey := pair(t, time.Now())
	privkey := filepath.Join(t.TempDir(), "privkey.pem")
	rename(t, beside, privkey)
	rename(t, otherKey, beside)
	if pair, err := Pair(cert, privkey); err != nil || pair.PrivateKey == nil {
		t.Error(err)
	}
	for name, tc := range map[string]struct{ cert, key, field, want string }{
		"of another":     {other, privkey, "Key", "certificate " + other + " with key " + privkey + ": tls: private key does not match public key"},
		"missing":        {cert, privkey + "x", "Key", "open " + privkey + "x"},
		"no key":         {cert, cert, "Key", cert + " with key " + cert},
		"no certificate": {privkey, privkey, "Cert", privkey},
	} {
		_, err := Pair(tc.cert, tc.key)
		var file *FileError
		if !errors.As(err, &file) || file.Field != tc.field || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %s: %s", name, err, tc.field, tc.want)
		}
	}
}

func TestTheLowestVersionOfTLS(t *testing.T) {
	cert, _ := pair(t, time.Now())
	for given, want := range map[uint16]uint16{0: tls.VersionTLS12, tls.VersionTLS10: tls.VersionTLS12, tls.VersionTLS12: tls.VersionTLS12, tls.VersionTLS13: tls.VersionTLS13} {
		if c, err := Load(Files{Cert: cert, MinVersion: given}); err != nil || c.MinVersion != want {
			t.Errorf("%x: %+v, %v; want %x", given, c, err, want)
		}
	}
}

func TestKeyFile(t *testing.T) {
	for cert, want := range map[string]string{
		"/tls/tls.crt": "/tls/tls.key", "/a.b/client.pem": "/a.b/client.key", "/a.b/client": "/a.b/client.key", "site.example.pem": "site.example.key",
	} {
		if got := KeyFile(cert); got != want {
			t.Errorf("%s: %s, want %s", cert, got, want)
		}
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
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
