package admission

import (
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
	LogLimiter boundedlog.Limiter
	Last       atomic.Pointer[DialFailure]
}

// DialFailure is a failed connection.
type DialFailure struct {
	At  time.Time
	Err *upstream.DialError
}

// NewDialFailures returns the record of failed connections to the upstream with that name.
func NewDialFailures(log *zap.Logger, name string) *DialFailures {
	f := &DialFailures{log: log, name: name}
	f.LogLimiter.PerMinute = DialLinesPerMinute
	f.LogLimiter.OnSuppressed = func(suppressed int) {
		log.Warn("more connections to the upstream failed, lines suppressed", zap.String("upstream", name), zap.Int("count", suppressed))
	}
	return f
}

// Record records and logs a failed connection.
func (f *DialFailures) Record(err *upstream.DialError) {
	f.Last.Store(&DialFailure{time.Now(), err})
	if f.LogLimiter.Allow() {
		f.log.Warn("a connection to the upstream failed", append([]zap.Field{zap.String("upstream", f.name)}, causeFields(err)...)...)
	}
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
