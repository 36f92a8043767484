package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Fallback is what answers if everything else failed: an upstream, that of another route, or a
// fixed response.
type Fallback struct {
	upstream Upstream
	route    string // name
	status   int
	body     string
}

// Route returns the name of the route whose upstream is the fallback, "" for none.
func (f Fallback) Route() string { return f.route }

// FallbackUpstream returns the route's fallback upstream; its Set reports whether there is one.
func (s *Settings) FallbackUpstream(r *Route) Upstream {
	if of := s.Find(r.Fallback.route); of != nil {
		return of.Upstream
	}
	return r.Fallback.upstream
}

// Answer returns the fixed response; its status is 0 if there is none.
func (f Fallback) Answer() (status int, body string) { return f.status, f.body }

// None reports whether there is no fallback.
func (f Fallback) None() bool { return f.status == 0 && f.route == "" && !f.upstream.Set() }

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
	if name, is := strings.CutPrefix(s, "route:"); is {
		f.route = name
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
	case f.route != "":
		return []byte("route:" + f.route), nil
	case f.status != 0:
		return fmt.Appendf(nil, "%d:%s", f.status, f.body), nil
	}
	return []byte("none"), nil
}

// fallback checks that the fallback is not one of our own listeners, and warns if it is the
// upstream itself.
func (c *checker) fallback() {
	if name := c.r.Fallback.route; name != "" && c.s.Find(name) == nil {
		c.errorf("FALLBACK", "route:"+name, "there is no route %s; %sROUTES lists them", name, Prefix)
		return
	}
	of := c.s.Find(c.r.Fallback.route)
	if of == c.r {
		if c.own("FALLBACK") {
			c.errorf("FALLBACK", "route:"+of.Name, "is the route itself")
		}
		return // inherited: the last of those that fall back has no fallback
	}
	to := c.s.FallbackUpstream(c.r)
	if !to.Set() {
		return
	}
	for _, listen := range c.ours {
		if to.reaches(listen) {
			c.errorf("FALLBACK", to.String(), "is retryproxy's own listener %s", listen)
			return
		}
	}
	if to.String() == c.r.Upstream.String() && (of == nil || of.RequestHeadersFile == c.r.RequestHeadersFile) {
		c.warnf("FALLBACK", to.String(), "is the upstream itself, so it fails at the same time")
	}
}

// fallsBackTo reports whether some other route has r as its fallback.
func (s *Settings) fallsBackTo(r *Route) bool {
	return slices.ContainsFunc(s.All(), func(other *Route) bool { return other != r && other.Fallback.route == r.Name })
}
