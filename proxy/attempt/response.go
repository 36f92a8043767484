package attempt

import (
	"errors"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/http2"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// MaxInformational bounds the 1xx responses before a final response.
const MaxInformational = 64

// readFinalHeaders reads response headers until a final response has come. All attempts read their
// headers here.
func (a *Attempt) readFinalHeaders() policy.Cause {
	a.conn.needBuffer()
	for range MaxInformational {
		if cause := a.readHeaders(); cause != policy.CauseStatus {
			return cause
		}
		switch status := a.conn.resp.Status; {
		case status == 101 && !a.acceptsUpgrade():
			return policy.CauseMalformed
		case status >= 200 || status == 101:
			return policy.CauseStatus
		}
		a.inform()
	}
	return policy.CauseMalformed
}

// readHeaders reads the headers of one response.
func (a *Attempt) readHeaders() policy.Cause {
	var method []byte
	if a.conn.env != nil {
		method = a.client().Method()
	}
	for {
		whole, err := a.conn.parseHeaders(a.options.Limits, method)
		switch {
		case err != nil:
			return causeOfHeaders(err)
		case whole:
			return policy.CauseStatus
		}
		if err = a.conn.takeEarlyErr(); err == nil {
			a.conn.makeRoom()
			err = a.fill(0)
		}
		if err != nil {
			a.noteUnread(err)
			return a.causeOf(err)
		}
	}
}

// fill reads once from the upstream into the read buffer, which must have room. idle is how long a body
// may pause; 0 means that headers are awaited.
func (a *Attempt) fill(idle time.Duration) error {
	if a.background != nil {
		return a.conn.read() // nobody waits for it
	}
	return a.await(idle)
}

// acceptsUpgrade reports whether the 101 names a protocol, was requested, and came after the whole
// request (RFC 9110 section 7.8). After a body that was cut short, the bytes of the new protocol
// would look like the rest of the body.
func (a *Attempt) acceptsUpgrade() bool {
	if a.background != nil {
		return false
	}
	a.upload.stop()
	return a.options.Upgrade && a.conn.resp.Upgrade != nil && a.progress.Load() == sent
}

// inform passes on an informational response.
func (a *Attempt) inform() {
	if a.background != nil {
		return
	}
	if a.conn.resp.Status == 100 {
		a.upload.bodyWanted()
	}
	a.owner().Inform(a.Response())
}

// causeOf returns the cause that corresponds to an error of reading headers.
func (a *Attempt) causeOf(err error) policy.Cause {
	switch {
	case rawsocket.IsTimeout(err) && a.progress.Load() == writeFailed:
		return policy.CauseReset
	case rawsocket.IsTimeout(err):
		return policy.CauseAttemptTimeout
	case errors.Is(err, http2.ErrRefused), errors.Is(err, http2.ErrUnprocessed) && !a.reused:
		return policy.CauseRefusedStream
	case errors.Is(err, http2.ErrUnprocessed):
		return policy.CauseIdleClose
	case errors.Is(err, http2.ErrNotRead):
		return policy.CauseReset
	case errors.As(err, new(*http1.Error)):
		return causeOfHeaders(err)
	}
	return policy.CauseReset
}

// noteUnread ends the client's side if headers were given up because the client took an interim response too slowly. If
// there was none, the client had nothing to take.
func (a *Attempt) noteUnread(err error) {
	if a.background != nil || !a.Begun() || !errors.Is(err, http2.ErrNotRead) {
		return
	}
	if a.upload.stop(); a.client().ClientStaysOn() { // the pump may record why the client's side ended
		a.client().ClientFailed(ErrClientGone)
	}
}

// AwaitResponse reads the response on a connection whose request was sent, until the deadline of the
// connection, and returns its status. Nothing of it was read before, and nobody waits for it.
func AwaitResponse(up *upstream.Conn) (status int, cause policy.Cause) {
	a := Attempt{background: new(background)}
	a.conn.up = up
	defer a.conn.giveUpBuffer()
	cause = a.readFinalHeaders()
	return a.conn.resp.Status, cause
}

// HeaderOrTrailer returns the value of a header of the response, or of a trailer after the end of
// the body.
func (a *Attempt) HeaderOrTrailer(name string) ([]byte, bool) {
	if v, ok := a.conn.resp.Lookup(name); ok {
		return v, true
	}
	if !a.body.ended {
		return nil, false
	}
	for _, f := range a.body.Trailers() {
		if http1.EqualFold(f.Name, name) {
			return f.Value, true
		}
	}
	return nil, false
}
