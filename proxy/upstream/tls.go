package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/proxy/certs"
)

// sessionCache is how many TLS sessions a target keeps for resumption. One per server
// behind the name is enough, so a few dozen do.
const sessionCache = 64

// TLSFiles holds the files and the name that replace the defaults of a TLS upstream. The
// zero value changes nothing. All files are PEM.
type TLSFiles struct {
	CA         string // certificates to trust instead of the system's; read once
	Cert       string // client certificate, leaf first; re-read when changed, as is its key
	Key        string // the key of Cert; "": where certs.Pair finds it
	ServerName string // sent as SNI and verified, instead of the target's host
}

// UseTLS loads the files and makes t use them. It fails, naming the file (by a
// *certs.FileError whose Field is that of TLSFiles), if t is not an https target, a file
// cannot be read or holds no certificate, or certificate and key do not match. Then t is
// unchanged. With the zero TLSFiles it does nothing.
//
// A changed client certificate is reloaded at the next handshake. While the new pair is
// incomplete or invalid, the old one stays in use.
func (t *Target) UseTLS(f TLSFiles) error {
	if f == (TLSFiles{}) {
		return nil
	}
	also := slices.Clone(t.MoreTargets)
	for i := range also {
		if err := also[i].useTLS(f); err != nil {
			return err
		}
	}
	if err := t.useTLS(f); err != nil {
		return err
	}
	t.MoreTargets = also
	return nil
}

func (t *Target) useTLS(f TLSFiles) error {
	if t.TLS == nil {
		return fmt.Errorf("upstream %s: certificate files and a server name need an https:// upstream", t)
	}
	config := t.TLS.Clone()
	if f.ServerName != "" {
		if err := checkHost(f.ServerName); err != nil {
			return fmt.Errorf("upstream %s: %w", t, &certs.FileError{Field: "ServerName", File: f.ServerName, Err: fmt.Errorf("server name: %w", err)})
		}
		config.ServerName = f.ServerName
	}
	if f.CA != "" {
		roots, err := certs.Authorities(f.CA)
		if err != nil {
			return fmt.Errorf("upstream %s: %w", t, &certs.FileError{Field: "CA", File: f.CA, Err: err})
		}
		config.RootCAs = roots
	}
	var client *clientCert
	if f.Cert != "" {
		client = &clientCert{file: f.Cert, key: f.Key}
		if err := client.read(); err != nil {
			return fmt.Errorf("upstream %s: %w", t, err)
		}
		config.GetClientCertificate = client.get
		// A resumed session keeps the certificate it began with, so a renewed one would not
		// be sent.
		config.ClientSessionCache = nil
	}
	t.TLS, t.clientCert = config, client
	t.tlsKey = fmt.Sprintf("%q %q %q %q", config.ServerName, f.CA, f.Cert, f.Key)
	return nil
}

// CertificateExpiry returns the end of validity of the current client certificate, after
// reloading changed files. ok is false without one. It is safe for concurrent use.
func (t Target) CertificateExpiry() (notAfter time.Time, ok bool) {
	if t.clientCert == nil {
		return time.Time{}, false
	}
	return t.clientCert.current().Leaf.NotAfter, true
}

// baseTLS returns the initial configuration of every https target. TLS 1.2 is the minimum
// of RFC 9325 section 3.1.1.
func baseTLS(serverName string, p Protocol) *tls.Config {
	return &tls.Config{
		ServerName:         serverName,
		NextProtos:         alpnProtocols[p],
		MinVersion:         tls.VersionTLS12,
		ClientSessionCache: tls.NewLRUClientSessionCache(sessionCache),
	}
}

// alpnProtocols lists what ALPN may choose from.
var alpnProtocols = map[Protocol][]string{HTTP1: {"http/1.1"}, HTTP2: {"h2"}, Negotiated: {"h2", "http/1.1"}}

// handshake performs the TLS handshake over wire; http1 asks for HTTP/1.1 alone if
// possible. It owns wire and closes it on error.
func (p *Pool) handshake(ctx context.Context, wire net.Conn, http1 bool) (*tls.Conn, *tlsWire, error) {
	below := &tlsWire{Conn: wire}
	conf := p.target.TLS
	if http1 && p.target.Protocol == Negotiated {
		conf = conf.Clone()
		conf.NextProtos = alpnProtocols[HTTP1]
	}
	c := tls.Client(below, conf)
	if err := c.HandshakeContext(ctx); err != nil {
		_ = wire.Close()
		return nil, nil, err
	}
	if peer := c.ConnectionState().PeerCertificates; len(peer) > 0 {
		p.peerExpiry.Store(peer[0].NotAfter.Unix())
	}
	return c, below, nil
}

// ErrTruncated is the error of reading a TLS connection that the peer ended without
// close_notify (RFC 8446 section 6.1): the data may be truncated. errors.Is(ErrTruncated,
// io.ErrUnexpectedEOF) is true.
var ErrTruncated error = truncated{}

type truncated struct{}

func (truncated) Error() string { return "TLS connection ended without close_notify" }

func (truncated) Is(target error) bool { return target == io.ErrUnexpectedEOF }

// errReadsBlocked is returned by a tlsWire with readsBlocked. It is temporary, so that
// crypto/tls does not make it the connection's permanent error.
var errReadsBlocked net.Error = readsBlockedError{}

type readsBlockedError struct{}

func (readsBlockedError) Error() string   { return "no bytes wanted from the wire" }
func (readsBlockedError) Timeout() bool   { return true }
func (readsBlockedError) Temporary() bool { return true }

// tlsWire is the connection below a tls.Conn. crypto/tls accepts an end of stream between
// two records as a proper end, since "popular web sites seem to do this". tlsWire turns it
// into ErrTruncated before crypto/tls sees it.
type tlsWire struct {
	net.Conn
	readsBlocked bool // reads return errReadsBlocked; only the owner of the Conn changes it
}

func (w *tlsWire) Read(p []byte) (int, error) {
	if w.readsBlocked {
		return 0, errReadsBlocked
	}
	n, err := w.Conn.Read(p)
	if err == io.EOF {
		err = ErrTruncated
	}
	return n, err
}

// isDrained reports whether c, over w, holds no bytes that were read from the wire and not
// yet by its reader, and saw no end.
func (w *tlsWire) isDrained(c net.Conn, scratch []byte) bool {
	w.readsBlocked = true
	n, err := c.Read(scratch[:1])
	w.readsBlocked = false
	return n == 0 && errors.Is(err, errReadsBlocked)
}

// clientCert is a certificate and its key, which are read again for every handshake that needs them:
// that costs less than the handshake. It is safe for concurrent use.
type clientCert struct {
	file  string
	key   string                          // file of the key; "": where certs.Pair finds it
	valid atomic.Pointer[tls.Certificate] // the last pair that could be read
}

// get implements tls.Config.GetClientCertificate. It returns the certificate even if the
// server does not list its issuer: the server's refusal is a clearer message than a missing
// certificate.
func (c *clientCert) get(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return c.current(), nil
}

// current returns the pair as it is in the files now. If it is incomplete or broken, current returns
// the last valid one.
func (c *clientCert) current() *tls.Certificate {
	_ = c.read()
	return c.valid.Load()
}

func (c *clientCert) read() error {
	pair, err := certs.Pair(c.file, c.key)
	if err != nil {
		return fmt.Errorf("client %w", err)
	}
	c.valid.Store(&pair)
	return nil
}
