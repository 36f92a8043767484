package upstream

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"

	"github.com/retryproxy/retryproxy/proxy/certs"
)

// clientCert is a certificate and key that follow their files.
type clientCert struct {
	certFile, keyFile string

	mu   sync.Mutex // guards all below
	pair *tls.Certificate
	seen [2]os.FileInfo // of the files pair was read from
}

// get has the form of tls.Config.GetClientCertificate. It gives the
// certificate whether or not the server says that it would accept its issuer:
// the server's refusal is a clearer message than a missing certificate.
func (c *clientCert) get(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return c.current(), nil
}

// current gives the pair, read anew when a file changed and the new pair is good.
func (c *clientCert) current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed() {
		_ = c.loadLocked() // not whole yet, or broken: the old one stays, the next call tries again
	}
	return c.pair
}

func (c *clientCert) load() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loadLocked()
}

// loadLocked takes the files' state before reading them, so that a change
// while it reads is seen as one the next time.
func (c *clientCert) loadLocked() error {
	seen, statErr := c.stat()
	pair, err := certs.Pair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("client %w", err)
	}
	if statErr != nil {
		return statErr
	}
	c.pair, c.seen = &pair, seen
	return nil
}

func (c *clientCert) stat() (s [2]os.FileInfo, err error) {
	for i, name := range []string{c.certFile, c.keyFile} {
		if s[i], err = os.Stat(name); err != nil {
			return s, err
		}
	}
	return s, nil
}

// changed: another file under the name (a swapped symbolic link included), or
// another size or time.
func (c *clientCert) changed() bool {
	now, err := c.stat()
	if err != nil {
		return false
	}
	for i, s := range c.seen {
		if !os.SameFile(s, now[i]) || s.Size() != now[i].Size() || !s.ModTime().Equal(now[i].ModTime()) {
			return true
		}
	}
	return false
}
