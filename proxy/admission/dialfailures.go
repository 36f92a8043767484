package admission

import (
	"crypto/x509"
	"errors"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/internal/boundedlog"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// DialLinesPerMinute bounds the log lines about failed connections to one upstream.
const DialLinesPerMinute = 6

// DialFailures logs the failed connections to one upstream and remembers the last one. It is safe
// for concurrent use.
type DialFailures struct {
	log        *zap.Logger
	name       string // of the upstream
	LogLimiter *boundedlog.Limiter
	Last       atomic.Pointer[DialFailure]
}

// DialFailure is a failed connection.
type DialFailure struct {
	At  time.Time
	Err *upstream.DialError
}

// NewDialFailures returns the record of failed connections to the upstream with that name.
func NewDialFailures(log *zap.Logger, name string) *DialFailures {
	return &DialFailures{log: log, name: name, LogLimiter: boundedlog.New(DialLinesPerMinute, func(suppressed int) {
		log.Warn("more connections to the upstream failed, lines suppressed", zap.String("upstream", name), zap.Int("count", suppressed))
	})}
}

// Record records a failed connection, and logs it unless the same line was written within a
// minute.
func (f *DialFailures) Record(err *upstream.DialError) {
	f.Last.Store(&DialFailure{time.Now(), err})
	if !f.LogLimiter.AllowOnce(err.Addr + " " + err.Kind.String() + " " + err.Text()) {
		return
	}
	fields := append([]zap.Field{zap.String("upstream", f.name)}, causeFields(err)...)
	if err.Untrusted {
		f.log.Warn("the certificate of the upstream cannot be verified; requests fail at once", append(fields, zap.String("hint", CertificateHint(err)))...)
		return
	}
	f.log.Warn("a connection to the upstream failed", fields...)
}

// CertificateHint returns what to do about a certificate that cannot be verified.
func CertificateHint(err *upstream.DialError) string {
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &name):
		return "set RETRYPROXY_UPSTREAM_HOST to a name that the certificate is for, or check RETRYPROXY_UPSTREAM"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "renew the certificate of the upstream, or correct the clock of this machine"
	case errors.As(err, &invalid):
		return "replace the certificate of the upstream: it is not valid for a TLS server"
	}
	return "set RETRYPROXY_UPSTREAM_CA to the file of the CA that issued the certificate"
}

// lastCause returns log fields with the cause of the last failure, or none if nothing failed.
func (f *DialFailures) lastCause() []zap.Field {
	if last := f.Last.Load(); last != nil {
		return causeFields(last.Err)
	}
	return nil
}

func causeFields(err *upstream.DialError) []zap.Field {
	return []zap.Field{zap.String("address", err.Addr), zap.Stringer("kind", err.Kind), zap.String("error", err.Text())}
}
