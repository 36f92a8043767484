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

// Bed is where a check runs. It ends all that was started on it. The zero Bed is ready for use.
type Bed struct {
	mu   sync.Mutex
	undo []func()
}

// Later calls do when the Bed ends, the last first.
func (b *Bed) Later(do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.undo = append(b.undo, do)
}

// End undoes all that was done on the Bed.
func (b *Bed) End() {
	b.mu.Lock()
	undo := b.undo
	b.undo = nil
	b.mu.Unlock()
	for _, do := range slices.Backward(undo) {
		do()
	}
}

// TempDir returns a new directory, which is removed at the end. Programs that root starts may become
// another user, so all may read it.
func (b *Bed) TempDir() string {
	dir, err := os.MkdirTemp("", "bench-")
	must(err)
	b.Later(func() { _ = os.RemoveAll(dir) })
	must(os.Chmod(dir, 0o755))
	return dir
}

// must panics, as httptest.NewServer does, if the machine has no directory or port for a check.
func must(err error) {
	if err != nil {
		panic("bench: " + err.Error())
	}
}

// Listen calls take for each connection to an address, in a goroutine of its own, and closes it then.
func (b *Bed) Listen(addr string, take func(net.Conn)) (at string, err error) {
	return b.Accept(addr, &Server{Take: take})
}

// Accept has s take the connections to an address.
func (b *Bed) Accept(addr string, s *Server) (at string, err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", err
	}
	b.Later(func() { _ = l.Close() })
	go s.Accept(l)
	return l.Addr().String(), nil
}

// Serve serves h on loopback.
func (b *Bed) Serve(h http.Handler) (at string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	s := &http.Server{Handler: h, DisableGeneralOptionsHandler: true, ErrorLog: log.New(io.Discard, "", 0)}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Serve(l) }()
	b.Later(func() { _ = s.Close(); <-ended })
	return l.Addr().String()
}

// Impossible is the error of a check that this machine cannot run.
type Impossible struct{ Why string }

func (i Impossible) Error() string { return "not possible here: " + i.Why }

// WriteCertificate writes a self-signed certificate for ip, valid for a day until then, and its key.
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
