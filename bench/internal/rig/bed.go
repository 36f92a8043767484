package rig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

// Bed starts what a check needs and ends it afterwards. The zero value is ready for use. It is safe for
// concurrent use.
type Bed struct {
	mu   sync.Mutex
	undo []func()
}

// Later registers do for End. The last one registered is called first.
func (b *Bed) Later(do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.undo = append(b.undo, do)
}

// End ends everything that was started on the Bed.
func (b *Bed) End() {
	b.mu.Lock()
	undo := b.undo
	b.undo = nil
	b.mu.Unlock()
	for _, do := range slices.Backward(undo) {
		do()
	}
}

// TempDir returns a new directory, which is removed at the end. Every user may read it, because programs
// that root starts may change their user.
func (b *Bed) TempDir() string {
	dir, err := os.MkdirTemp("", "bench-")
	must(err)
	b.Later(func() { _ = os.RemoveAll(dir) })
	must(os.Chmod(dir, 0o755))
	return dir
}

// must panics if the machine has no directory or port for a check, as httptest.NewServer does.
func must(err error) {
	if err != nil {
		panic("bench: " + err.Error())
	}
}

// Listen listens at an address. It calls take for each connection, in a new goroutine, and then closes
// the connection.
func (b *Bed) Listen(addr string, take func(net.Conn)) (at string, err error) {
	return b.Accept(addr, &Server{Take: take})
}

// Accept listens at an address for s.
func (b *Bed) Accept(addr string, s *Server) (at string, err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", err
	}
	b.Later(func() { _ = l.Close() })
	go s.Accept(l)
	return l.Addr().String(), nil
}

// Serve starts an HTTP server on loopback, for HTTP/1.1 and for HTTP/2 without TLS.
func (b *Bed) Serve(h http.Handler) (at string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	s := &http.Server{Handler: h, DisableGeneralOptionsHandler: true, ErrorLog: log.New(io.Discard, "", 0), Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Serve(l) }()
	b.Later(func() { _ = s.Close(); <-ended })
	return l.Addr().String()
}

// Impossible is the error of a check that this machine cannot run.
type Impossible struct{ Why string }

func (i Impossible) Error() string { return "not possible here: " + i.Why }

// WriteCertificate writes a self-signed certificate for ip and its key. It is valid for the day before
// until.
func WriteCertificate(file string, ip net.IP, until time.Time) error {
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
	both := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return os.WriteFile(file, append(both, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...), 0o600)
}
