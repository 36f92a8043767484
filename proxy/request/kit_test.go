package request_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/requesttest"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// bubble runs a test whose time is not that of the machine.
func bubble(test func(t *testing.T)) func(t *testing.T) {
	return func(t *testing.T) { synctest.Test(t, test) }
}

// message is a request with more headers, each a line.
func message(method, target string, lines ...string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: shop.example\r\n%s\r\n", method, target, strings.Join(append(lines, ""), "\r\n"))
}

func get(lines ...string) string { return message("GET", "/a", lines...) }

// begin returns a request whose client has sent text, and which is prepared.
func begin(t *testing.T, text string, change func(c *settings.Config)) *requesttest.Client {
	t.Helper()
	c := requesttest.Begin(t, text, change)
	c.Out.FindID()
	c.Prepare()
	return c
}

// upload returns a request of n bytes of body, of which none has come.
func upload(t *testing.T, n int, change func(c *settings.Config)) *requesttest.Client {
	t.Helper()
	return begin(t, message("PUT", "/a", fmt.Sprintf("Content-Length: %d", n)), change)
}

// chunked returns a request with a body in chunks, of which none has come.
func chunked(t *testing.T, change func(c *settings.Config)) *requesttest.Client {
	t.Helper()
	return begin(t, message("PUT", "/a", "Transfer-Encoding: chunked"), change)
}

// send makes the client send text, as it is read.
func send(c *requesttest.Client, text string) {
	go func() { _, _ = io.WriteString(c.Far, text) }()
}

// all reads the body to its end, or to an error.
func all(c *requesttest.Client) (string, error) {
	var b strings.Builder
	for {
		piece, err := c.Body.Next(0)
		b.Write(piece)
		if err == io.EOF {
			return b.String(), nil
		}
		if err != nil {
			return b.String(), err
		}
	}
}

func wantAll(t *testing.T, c *requesttest.Client, want string) {
	t.Helper()
	if got, err := all(c); err != nil || got != want {
		t.Errorf("%d bytes, %v; want %d", len(got), err, len(want))
	}
}

// refusal returns the rule that err says was broken.
func refusal(err error) http1.Refusal {
	var e *http1.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return http1.RefusalNone
}
