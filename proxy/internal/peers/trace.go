package peers

import (
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/proxy/trace"
)

// AttemptsTraced is a Tracer that remembers what is said of attempts.
type AttemptsTraced struct {
	Mu  sync.Mutex
	All []trace.Attempt
}

func (t *AttemptsTraced) Request(*trace.Request) trace.RequestSpan { return t }

func (t *AttemptsTraced) Attempt(a *trace.Attempt) trace.AttemptSpan {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	t.All = append(t.All, *a)
	return nil
}

func (*AttemptsTraced) TraceID() string { return "" }

func (*AttemptsTraced) Recorded() bool { return false }

func (*AttemptsTraced) Waited(string, time.Time, time.Duration) {}

func (*AttemptsTraced) End(*trace.End) {}
