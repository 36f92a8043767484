package attempt

import (
	"errors"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// MaxInformational bounds the 1xx responses before a final response.
const MaxInformational = 64

// Reader does for an attempt what concerns the client while the response is read.
type Reader interface {
	// Fill reads once from the upstream into the attempt's buffer, which has room. idle is how
	// long a body may pause; 0 means that headers are awaited.
	Fill(a *Attempt, idle time.Duration) error
	// AcceptsUpgrade reports whether the client asked for the upgrade in a 101.
	AcceptsUpgrade(a *Attempt) bool
	// Inform takes an informational response, which is in a.Resp.
	Inform(a *Attempt)
}

// ReadFinalHeaders reads response headers until a.Resp holds final ones. All attempts read their
// headers here.
func (a *Attempt) ReadFinalHeaders(from Reader, limits http1.Limits, method []byte) policy.Cause {
	a.NeedBuffer()
	for range MaxInformational {
		if cause := a.readHeaders(from, limits, method); cause != policy.CauseStatus {
			return cause
		}
		switch status := a.Resp.Status; {
		case status == 101 && !from.AcceptsUpgrade(a):
			return policy.CauseMalformed
		case status >= 200 || status == 101:
			return policy.CauseStatus
		}
		from.Inform(a)
	}
	return policy.CauseMalformed
}

// readHeaders reads the headers of one response into a.Resp.
func (a *Attempt) readHeaders(from Reader, limits http1.Limits, method []byte) policy.Cause {
	for {
		if a.R < a.W {
			n, err := a.Resp.Parse(a.Up.Buf[a.R:a.W], limits, method)
			if err != nil {
				return policy.CauseMalformed
			}
			if n > 0 {
				a.HeaderStart, a.HeaderEnd = int32(a.R), int32(a.R+n)
				a.R += n
				return policy.CauseStatus
			}
		}
		if err := a.EarlyErr; err != nil {
			a.EarlyErr = nil
			return a.causeOf(err)
		}
		a.makeRoom()
		if err := from.Fill(a, 0); err != nil {
			return a.causeOf(err)
		}
	}
}

// causeOf returns the cause that corresponds to an error of reading headers.
func (a *Attempt) causeOf(err error) policy.Cause {
	switch {
	case rawsocket.IsTimeout(err) && a.Progress.Load() == WriteFailed:
		return policy.CauseReset
	case rawsocket.IsTimeout(err):
		return policy.CauseAttemptTimeout
	case errors.Is(err, upstream.ErrRefused), errors.Is(err, upstream.ErrUnprocessed) && !a.Reused:
		return policy.CauseRefusedStream
	case errors.Is(err, upstream.ErrUnprocessed):
		return policy.CauseIdleClose
	}
	return policy.CauseReset
}

// Plain is the Reader of an attempt that no client waits for.
type Plain struct{}

// Fill implements Reader.
func (Plain) Fill(a *Attempt, _ time.Duration) error { return a.Read() }

// AcceptsUpgrade implements Reader.
func (Plain) AcceptsUpgrade(*Attempt) bool { return false }

// Inform implements Reader.
func (Plain) Inform(*Attempt) {}
