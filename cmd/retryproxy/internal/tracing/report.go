package tracing

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// reporter logs what the SDK says goes wrong: the first of each minute, with how
// many there were since the one before.
type reporter struct {
	log *zap.Logger
	now func() time.Time

	mu     sync.Mutex // guards all below
	last   time.Time
	missed int
}

func newReporter(log *zap.Logger) *reporter { return &reporter{log: log, now: time.Now} }

// reportEvery bounds the lines: a collector that is down fails every five seconds.
const reportEvery = time.Minute

// Handle is part of otel.ErrorHandler. It is called by any goroutine.
func (r *reporter) Handle(err error) {
	r.mu.Lock()
	now := r.now()
	if !r.last.IsZero() && now.Sub(r.last) < reportEvery {
		r.missed++
		r.mu.Unlock()
		return
	}
	missed := r.missed
	r.last, r.missed = now, 0
	r.mu.Unlock()
	r.log.Warn("OpenTelemetry reports an error; requests are not affected", zap.Error(err), zap.Int("more_since", missed))
}
