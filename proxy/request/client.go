package request

import (
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
)

// A Request is the attempt.Client of its attempts. What it lends to them is in lend.go.
var _ attempt.Client = (*Request)(nil)

// Method returns the method of the request.
func (r *Request) Method() []byte { return r.HTTP.Method }

// LeavesAt returns when the client leaves, as it announced; zero means that it is unknown.
func (r *Request) LeavesAt() clock.Instant { return r.Time.ClientLeavesAt }

// Source returns the body of the request.
func (r *Request) Source() attempt.Source { return &r.Body }

// Tick reads the clock for the request.
func (r *Request) Tick() clock.Instant { return r.Time.Tick() }

// LastTick returns when the clock was last read for the request.
func (r *Request) LastTick() clock.Instant { return r.Time.Clock }
