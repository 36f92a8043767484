package upstream

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"

	"github.com/retryproxy/retryproxy/proxy/certs"
)

// clientCert is a certificate and key that are reloaded when their files change.
type clientCert struct {
	file string

	mu   sync.Mutex // guards the fields below
	pair *tls.Certificate
	seen [2]os.FileInfo // of the files that pair was read from
}

// get implements tls.Config.GetClientCertificate. It returns the certificate even if the
// server does not list its issuer: the server's refusal is a clearer message than a missing
// certificate.
func (c *clientCert) get(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return c.current(), nil
}

// current returns the pair. It reloads a changed file if the new pair is valid.
func (c *clientCert) current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed() {
		_ = c.loadLocked() // incomplete or broken: keep the old pair, the next call tries again
	}
	return c.pair
}

func (c *clientCert) load() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loadLocked()
}

// loadLocked reads the file state before the files, so that a change during the read is
// detected the next time.
func (c *clientCert) loadLocked() error {
	seen, statErr := c.stat()
	pair, err := certs.Pair(c.file)
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
	if s[0], err = os.Stat(c.file); err == nil {
		s[1], _ = os.Stat(certs.KeyFile(c.file)) // none if the certificate's file has the key
	}
	return s, err
}

// changed reports whether a name refers to another file (a changed symbolic link included),
// or a size or time differs.
func (c *clientCert) changed() bool {
	now, err := c.stat()
	if err != nil {
		return false
	}
	for i, s := range c.seen {
		if isOther(s, now[i]) {
			return true
		}
	}
	return false
}

func isOther(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return (a == nil) != (b == nil)
	}
	return !os.SameFile(a, b) || a.Size() != b.Size() || !a.ModTime().Equal(b.ModTime())
}
