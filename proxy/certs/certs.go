// Package certs loads the TLS certificates that the proxy presents to clients, and the authorities
// that it checks clients' certificates against.
//
// Load reads the files once. To follow changed files, call it again and replace the old
// configuration. While the new files are incomplete or do not match, Load fails and the old
// configuration stays in use.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Files are the PEM files of a listener.
type Files struct {
	Cert     string // the certificate, leaf first, then its chain
	Key      string // its private key; "": see KeyFile
	ClientCA string // authorities for clients' certificates; "" requests none

	MinVersion uint16 // lowest version of TLS, such as tls.VersionTLS13; 0 is TLS 1.2
}

// Load returns the configuration of a listener. If ClientCA is set, a client without a valid
// certificate fails the handshake. TLS 1.2 is the minimum of RFC 9325 section 3.1.1. The caller
// sets NextProtos. The error names the file.
func Load(f Files) (*tls.Config, error) {
	pair, err := Pair(f.Cert, f.Key)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: max(f.MinVersion, tls.VersionTLS12)}
	if f.ClientCA == "" {
		return c, nil
	}
	if c.ClientCAs, err = Authorities(f.ClientCA); err != nil {
		return nil, &FileError{Field: "ClientCA", File: f.ClientCA, Err: err}
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	return c, nil
}

// FileError reports which of several named files cannot be used, so that the caller can name its
// setting.
type FileError struct {
	Field string // of the struct that names the files, e.g. "Cert", "Key"
	File  string
	Err   error // names the file
}

// Error returns the cause, which names the file.
func (e *FileError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Err }

// KeyFile returns the file of a certificate's private key if none is named and the certificate's file
// does not contain it: the file of the same name that ends in .key, such as tls.crt and tls.key of a
// Kubernetes secret. HAProxy has the same rule.
func KeyFile(certFile string) string {
	return strings.TrimSuffix(certFile, filepath.Ext(certFile)) + ".key"
}

// Pair reads a certificate, leaf first, and its private key from keyFile. If keyFile is "", the key is
// in the certificate's file or in KeyFile. The error is a *FileError with the field Cert or Key. If the
// two do not match, the field is Key, and the error names both files.
func Pair(certFile, keyFile string) (tls.Certificate, error) {
	wrong := func(field, file string, err error) (tls.Certificate, error) {
		return tls.Certificate{}, &FileError{Field: field, File: file, Err: fmt.Errorf("certificate %s with key %s: %w", certFile, keyFile, err)}
	}
	cert, err := os.ReadFile(certFile)
	if err != nil {
		return tls.Certificate{}, &FileError{Field: "Cert", File: certFile, Err: fmt.Errorf("certificate: %w", err)}
	}
	key := cert
	switch {
	case keyFile != "":
		if key, err = os.ReadFile(keyFile); err != nil {
			return wrong("Key", keyFile, err)
		}
	case hasKey(cert):
		keyFile = certFile
	default:
		keyFile = KeyFile(certFile)
		if key, err = os.ReadFile(keyFile); err != nil {
			return wrong("Key", keyFile, fmt.Errorf("the certificate's file has no key, and the key's file cannot be read: %w", err))
		}
	}
	pair, err := tls.X509KeyPair(cert, key)
	switch {
	case err != nil && !isCertificate(cert):
		return wrong("Cert", certFile, err)
	case err != nil:
		return wrong("Key", keyFile, err)
	}
	return pair, nil
}

// hasKey reports whether text contains a private key.
func hasKey(text []byte) bool {
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return false
		}
		if block.Type == "PRIVATE KEY" || strings.HasSuffix(block.Type, " PRIVATE KEY") {
			return true
		}
		text = rest
	}
}

// isCertificate reports whether the first certificate in text can be read.
func isCertificate(text []byte) bool {
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return false
		}
		if block.Type == "CERTIFICATE" {
			_, err := x509.ParseCertificate(block.Bytes)
			return err == nil
		}
		text = rest
	}
}

// Authorities reads certificates in PEM form that others are checked against. The error names the
// file.
func Authorities(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate in PEM form found", file)
	}
	return pool, nil
}

// Expiry returns the end of validity of the certificate of a configuration from Load. ok is false
// if c is nil.
func Expiry(c *tls.Config) (time.Time, bool) {
	if c == nil || len(c.Certificates) == 0 || c.Certificates[0].Leaf == nil {
		return time.Time{}, false
	}
	return c.Certificates[0].Leaf.NotAfter, true
}
