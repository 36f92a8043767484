package request

import (
	"time"

	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// A Request is the attempt.Client of its attempts. What it lends to them is in lend.go.
var _ attempt.Client = (*Request)(nil)

// Method returns the method of the request.
func (cr *Request) Method() []byte { return cr.HTTP.Method }

// Form returns how header sections are written for the client.
func (cr *Request) Form() wire.Form { return cr.Conn.Form() }

// Source returns the body of the request.
func (cr *Request) Source() attempt.Source { return &cr.Body }

// Limits returns those of the headers and trailers of a response.
func (cr *Request) Limits() http1.Limits { return cr.Settings.Limits }

// BodyIdle is like Time.BodyIdle.
func (cr *Request) BodyIdle() time.Duration { return cr.Time.BodyIdle() }

// LeavesAt returns when the client leaves, as it announced; zero means that it is unknown.
func (cr *Request) LeavesAt() clock.Instant { return cr.Time.ClientLeavesAt }

// Tick reads the clock for the request.
func (cr *Request) Tick() clock.Instant { return cr.Time.Tick() }

// LastTick returns when the clock was last read for the request.
func (cr *Request) LastTick() clock.Instant { return cr.Time.Clock }
