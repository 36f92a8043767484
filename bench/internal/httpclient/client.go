// Package httpclient is the clients' side of HTTP for benchmarks: it sends one
// request again and again over one kept connection, at little cost, so that
// thousands of clients fit beside what they measure.
package httpclient

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

// Client asks Addr for Request. It belongs to one goroutine.
type Client struct {
	Addr    string
	Request []byte // as it is sent; it has no body and is no HEAD
	Dialer  net.Dialer

	conn   net.Conn // nil: none
	in     *bufio.Reader
	reused bool // conn has brought a response already
}

// Exchange sends the request and reads the response, which must be there by
// deadline. A kept connection that turns out to be closed is no response: then a
// new one is made, as every client library does.
func (c *Client) Exchange(ctx context.Context, deadline time.Time) (status int, err error) {
	reused := c.reused
	if status, err = c.once(ctx, deadline); err != nil {
		c.HangUp()
		if reused && time.Now().Before(deadline) {
			if status, err = c.once(ctx, deadline); err != nil {
				c.HangUp()
			}
		}
	}
	return status, err
}

func (c *Client) once(ctx context.Context, deadline time.Time) (int, error) {
	if c.conn == nil {
		if err := c.dial(ctx, deadline); err != nil {
			return 0, err
		}
	}
	if err := c.conn.SetDeadline(deadline); err != nil {
		return 0, err
	}
	if _, err := c.conn.Write(c.Request); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, err
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, err
	}
	c.reused = true
	if resp.Close {
		c.HangUp()
	}
	return resp.StatusCode, nil
}

func (c *Client) dial(ctx context.Context, deadline time.Time) error {
	c.Dialer.Deadline = deadline
	conn, err := c.Dialer.DialContext(ctx, "tcp", c.Addr)
	if err != nil {
		return err
	}
	if c.in == nil {
		c.in = bufio.NewReaderSize(nil, 1024)
	}
	c.conn, c.reused = conn, false
	c.in.Reset(conn)
	return nil
}

// Connected says whether a connection is kept.
func (c *Client) Connected() bool { return c.conn != nil }

// HangUp closes the connection, as clients do that have had enough.
func (c *Client) HangUp() {
	if c.conn != nil {
		c.conn.Close()
		c.conn, c.reused = nil, false
	}
}

// KindOf is a short name of what went wrong.
func KindOf(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "closed"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	}
	return "other"
}

// Sleep reports whether d passed before ctx ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
