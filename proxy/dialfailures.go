package proxy

import (
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/internal/boundedlog"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// dialLinesPerMinute bounds the lines about failed connections to one upstream.
const dialLinesPerMinute = 6

// dialFailures logs the failed connections to one upstream and remembers the
// last one.
type dialFailures struct {
	log        *zap.Logger
	name       string // of the upstream
	logLimiter boundedlog.Limiter
	last       atomic.Pointer[DialFailure]
}

// DialFailure is a failed connection.
type DialFailure struct {
	At  time.Time
	Err *upstream.DialError
}

func newDialFailures(log *zap.Logger, name string) *dialFailures {
	f := &dialFailures{log: log, name: name}
	f.logLimiter.PerMinute = dialLinesPerMinute
	f.logLimiter.OnSuppressed = func(suppressed int) {
		log.Warn("more connections to the upstream failed, lines suppressed", zap.String("upstream", name), zap.Int("count", suppressed))
	}
	return f
}

// record is told of each failed connection.
func (f *dialFailures) record(err *upstream.DialError) {
	f.last.Store(&DialFailure{time.Now(), err})
	if f.logLimiter.Allow() {
		f.log.Warn("a connection to the upstream failed", append([]zap.Field{zap.String("upstream", f.name)}, causeFields(err)...)...)
	}
}

// lastCause are the fields that say what failed last; none if nothing did.
func (f *dialFailures) lastCause() []zap.Field {
	if last := f.last.Load(); last != nil {
		return causeFields(last.Err)
	}
	return nil
}

func causeFields(err *upstream.DialError) []zap.Field {
	return []zap.Field{zap.String("address", err.Addr), zap.Stringer("kind", err.Kind), zap.String("error", err.Text())}
}
