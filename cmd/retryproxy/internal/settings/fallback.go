package settings

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Fallback is what answers when all else failed: an upstream, or a response of
// ours.
type Fallback struct {
	upstream Upstream
	status   int
	body     string
}

// Upstream is the one to ask; its Set says whether there is one.
func (f Fallback) Upstream() Upstream { return f.upstream }

// Answer is what to answer; a status of 0 for nothing.
func (f Fallback) Answer() (status int, body string) { return f.status, f.body }

// None reports that there is no fallback.
func (f Fallback) None() bool { return f.status == 0 && !f.upstream.Set() }

// bounds of a response: what comes before 200 is none, and a code beyond 599
// means nothing to anybody.
const (
	leastAnswer = 200
	mostAnswer  = 599
)

// UnmarshalText reads none, an upstream, or a status code and a body with a
// colon between.
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

// fallback: one that is our own listener, or what just failed.
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
		c.warnf("FALLBACK", to.String(), "is the upstream whose failure it is for")
	}
}
