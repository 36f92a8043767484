package request

import (
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
)

// A Request is the attempt.Client of its attempts. What it lends to them is in lend.go.
var _ attempt.Client = (*Request)(nil)

// Method returns the method of the request.
func (cr *Request) Method() []byte { return cr.HTTP.Method }

// LeavesAt returns when the client leaves, as it announced; zero means that it is unknown.
func (cr *Request) LeavesAt() clock.Instant { return cr.Time.ClientLeavesAt }

// Source returns the body of the request.
func (cr *Request) Source() attempt.Source { return &cr.Body }

// Tick reads the clock for the request.
func (cr *Request) Tick() clock.Instant { return cr.Time.Tick() }

// LastTick returns when the clock was last read for the request.
func (cr *Request) LastTick() clock.Instant { return cr.Time.Clock }
