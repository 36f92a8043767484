package downstream

import (
	"net/http"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// Form returns how header sections are written for the client.
func (c *Conn) Form() wire.Form {
	if c.Stream != nil {
		return wire.Block
	}
	return wire.Lines
}

// parse reads the request whose headers are at the beginning of b.
func (c *Conn) parse(b []byte, limits http1.Limits) (n int, err error) {
	if c.Stream != nil {
		return c.request.Compose(b, limits)
	}
	return c.request.Parse(b, limits)
}

// ReadBody reads the request's body. io.EOF means that the client closed its side, or that a body ended that
// ends with its stream; see BodyEnded.
func (c *Conn) ReadBody(p []byte) (int, error) {
	if c.Stream == nil {
		return c.NC.Read(p)
	}
	return c.Stream.ReadBody(p)
}

// BodyEnded reports whether ReadBody has read all of a body that ends with its stream.
func (c *Conn) BodyEnded() bool { return c.Stream != nil && c.Stream.BodyRead() }

// Trailers returns the trailers of a body that ended with its stream.
func (c *Conn) Trailers() []http1.Header {
	if c.Stream == nil {
		return nil
	}
	return c.Stream.Trailers()
}

// Inform writes an interim response, whose fields are a section in the form of the wire: as lines all of it.
func (c *Conn) Inform(status int, section []byte, now clock.Instant) error {
	if c.Stream == nil {
		return c.Write(section, now)
	}
	err := c.WriteHeaders(status, section, false, now)
	c.Flush()
	return err
}

// Continue asks the client for the body that it holds back.
func (c *Conn) Continue(now clock.Instant) error {
	if c.Stream == nil {
		return c.Write(continueLine, now)
	}
	return c.Inform(http.StatusContinue, nil, now)
}

var continueLine = []byte("HTTP/1.1 100 Continue\r\n\r\n")

// What follows writes a response to a stream, within the deadline for a client that reads nothing.

// WriteHeaders writes a header section of a response, whose fields are a wire.Block. It goes out with what is
// written next, or by Flush. If ends is set, the response has no more.
func (c *Conn) WriteHeaders(status int, block []byte, ends bool, now clock.Instant) error {
	c.beginWrite(now)
	defer c.EndWrite()
	return c.Stream.WriteHeaders(status, block, ends)
}

// WriteBody writes p and then q, both pieces of the body, and ends the response if ends is set.
func (c *Conn) WriteBody(p, q []byte, ends bool, now clock.Instant) error {
	c.beginWrite(now)
	defer c.EndWrite()
	return c.Stream.WriteBody(p, q, ends)
}

// WriteTrailers ends the response with trailers.
func (c *Conn) WriteTrailers(trailers []http1.Header, now clock.Instant) error {
	c.beginWrite(now)
	defer c.EndWrite()
	return c.Stream.WriteTrailers(trailers)
}

// Flush sends the headers that were written.
func (c *Conn) Flush() { c.Stream.Flush() }

func (c *Conn) beginWrite(now clock.Instant) {
	c.ExtendWrite(now)
	c.BeginWrite(now)
}
