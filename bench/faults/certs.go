//go:build linux

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificateExpired is an https upstream that shows an expired certificate, until it is renewed.
func certificateExpired() fault {
	f := fault{name: "certificate expired", how: "an https upstream whose certificate is a minute too old, connections reset; then a renewed one", felt: failedAttempts, expects: ambiguous}
	var good, old string
	f.prepare = func(st *stage) error {
		good, old = filepath.Join(st.dir, "good.pem"), filepath.Join(st.dir, "old.pem")
		host, _, err := net.SplitHostPort(st.upAddr)
		if err != nil {
			return err
		}
		for file, until := range map[string]time.Time{good: time.Now().Add(time.Hour), old: time.Now().Add(-time.Minute)} {
			if err := writeCertificate(file, net.ParseIP(host), until); err != nil {
				return err
			}
		}
		both := filepath.Join(st.dir, "authorities.pem")
		var all []byte
		for _, file := range []string{good, old} {
			b, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			block, _ := pem.Decode(b)
			all = append(all, pem.EncodeToMemory(block)...)
		}
		st.upArgs, st.target = []string{"--cert", good}, "https://"+st.upAddr
		st.settings = []string{"RETRYPROXY_UPSTREAM_CA=" + both}
		return os.WriteFile(both, all, 0o600)
	}
	f.begin = func(st *stage) error { return orderUpstream("cert "+old, "drop")(st) }
	f.end = func(st *stage) error { return orderUpstream("cert " + good)(st) }
	return f
}

// writeCertificate writes a certificate, signed by itself, that is valid for a day until then, and its key.
func writeCertificate(file string, ip net.IP, until time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return err
	}
	c := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: serial.String()}, IPAddresses: []net.IP{ip},
		NotBefore: until.Add(-24 * time.Hour), NotAfter: until, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: der})
	_ = pem.Encode(&b, &pem.Block{Type: "PRIVATE KEY", Bytes: private})
	return os.WriteFile(file, b.Bytes(), 0o600)
}
