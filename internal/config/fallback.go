package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Fallback is what answers if everything else failed: an upstream, or a fixed response.
type Fallback struct {
	upstream Upstream
	status   int
	body     string
}

// Upstream returns the fallback upstream; its Set reports whether there is one.
func (f Fallback) Upstream() Upstream { return f.upstream }

// Answer returns the fixed response; its status is 0 if there is none.
func (f Fallback) Answer() (status int, body string) { return f.status, f.body }

// None reports whether there is no fallback.
func (f Fallback) None() bool { return f.status == 0 && !f.upstream.Set() }

// Limits of the status of a fixed response: it is final, and a valid code.
const (
	leastAnswer = 200
	mostAnswer  = 599
)

// UnmarshalText parses none, an upstream, or a status code, a colon and a body.
func (f *Fallback) UnmarshalText(text []byte) error {
	s := string(text)
	*f = Fallback{}
	if s == "none" {
		return nil
	}
	code, body, colon := strings.Cut(s, ":")
	n, err := strconv.ParseUint(code, 10, 16)
	switch {
	case err != nil:
		return f.upstream.UnmarshalText(text)
	case !colon:
		return fmt.Errorf("no colon and body after %s", code)
	case n < leastAnswer || n > mostAnswer:
		return fmt.Errorf("status %s is not within %d to %d", code, leastAnswer, mostAnswer)
	case (n == 204 || n == 304) && body != "":
		return fmt.Errorf("a %d has no body", n)
	case strings.ContainsRune(body, 0):
		return errors.New("a zero byte in the body")
	}
	f.status, f.body = int(n), body
	return nil
}

// MarshalText is the inverse of UnmarshalText.
func (f Fallback) MarshalText() ([]byte, error) {
	switch {
	case f.upstream.Set():
		return f.upstream.MarshalText()
	case f.status != 0:
		return fmt.Appendf(nil, "%d:%s", f.status, f.body), nil
	}
	return []byte("none"), nil
}

// fallback checks that the fallback is not one of our own listeners, and warns if it is the
// upstream itself.
func (c *checker) fallback() {
	to := c.r.Fallback.Upstream()
	if !to.Set() {
		return
	}
	for _, listen := range c.ours {
		if to.reaches(listen) {
			c.errorf("FALLBACK", to.String(), "is retryproxy's own listener %s", listen)
			return
		}
	}
	if to.String() == c.r.Upstream.String() {
		c.warnf("FALLBACK", to.String(), "is the upstream itself, so it fails at the same time")
	}
}
