package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Fallback is what answers if everything else fails: upstreams, upstreams of other routes, or a
// fixed response, in this order.
type Fallback struct{ list []FallbackEntry }

// FallbackEntry is one entry: an upstream, the name of a route, or a response.
type FallbackEntry struct {
	upstream Upstream
	route    string // name
	status   int
	body     string
}

// Limits of the status of a fixed response: it is final, and a valid code.
const (
	leastAnswer = 200
	mostAnswer  = 599
)

// maxFallbacks limits the list: a tenth of the request's time is reserved for each of its
// upstreams.
const maxFallbacks = 4

const routeEntry = "route:"

// parseFallback parses none, or entries separated by commas. Several addresses in a row are one
// upstream, as in UPSTREAM. A status code, a colon and a body can only be the last entry; the body
// may contain commas.
func parseFallback(s string) (f Fallback, err error) {
	if s == "none" {
		return f, nil
	}
	for rest := strings.TrimSpace(s); rest != ""; {
		var entry FallbackEntry
		part, err := entry.parse(rest)
		if err != nil {
			return f, err
		}
		f.list = append(f.list, entry)
		rest = strings.TrimSpace(strings.TrimPrefix(rest[part:], ","))
	}
	if len(f.list) > maxFallbacks {
		return f, fmt.Errorf("more than %d fallbacks", maxFallbacks)
	}
	return f, nil
}

// parse reads the entry at the start of s and returns its length.
func (e *FallbackEntry) parse(s string) (length int, err error) {
	if name, is := strings.CutPrefix(s, routeEntry); is {
		name, _, _ = strings.Cut(name, ",")
		if e.route = strings.TrimSpace(name); e.route == "" {
			return 0, errors.New("route: needs the name of a route")
		}
		return len(routeEntry) + len(name), nil
	}
	if isAnswer(s) {
		return len(s), e.parseAnswer(s)
	}
	length = upstreamLength(s)
	e.upstream, err = parseUpstream(strings.TrimSpace(s[:length]))
	return length, err
}

// isAnswer reports whether s begins with a digit, which no upstream does.
func isAnswer(s string) bool { return s[0] >= '0' && s[0] <= '9' }

// upstreamLength returns the length of the addresses at the start of s, up to the comma before an entry of
// another kind.
func upstreamLength(s string) int {
	for i := range len(s) {
		if next := strings.TrimSpace(s[i+1:]); s[i] == ',' && next != "" && (strings.HasPrefix(next, routeEntry) || isAnswer(next)) {
			return i
		}
	}
	return len(s)
}

func (e *FallbackEntry) parseAnswer(s string) error {
	code, body, colon := strings.Cut(s, ":")
	n, err := strconv.ParseUint(code, 10, 16)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a status code", code)
	case !colon:
		return fmt.Errorf("a colon and a body are missing after the status %s", code)
	case n < leastAnswer || n > mostAnswer:
		return fmt.Errorf("status %s is not within %d to %d", code, leastAnswer, mostAnswer)
	case (n == 204 || n == 304) && body != "":
		return fmt.Errorf("a response with status %d cannot have a body", n)
	case strings.ContainsRune(body, 0):
		return errors.New("the body has a zero byte")
	}
	e.status, e.body = int(n), body
	return nil
}

// String is the inverse of parseFallback.
func (f Fallback) String() string {
	var parts []string
	for i := range f.list {
		parts = append(parts, f.list[i].String())
	}
	return orNone(strings.Join(parts, ","))
}

// String returns the entry in the syntax of the setting.
func (e *FallbackEntry) String() string {
	switch {
	case e.route != "":
		return routeEntry + e.route
	case e.status != 0:
		return fmt.Sprintf("%d:%s", e.status, e.body)
	}
	return e.upstream.String()
}

// FallbackUpstreams returns the route's fallback upstreams.
func (s *Settings) FallbackUpstreams(r *Route) (all []Upstream) {
	for i := range r.Fallback.list {
		if to := s.fallbackUpstream(&r.Fallback.list[i]); to.Set() {
			all = append(all, to)
		}
	}
	return all
}

// fallbackUpstream returns the upstream of an entry; its Set reports whether there is one.
func (s *Settings) fallbackUpstream(e *FallbackEntry) Upstream {
	if e.route == "" {
		return e.upstream
	}
	if of := s.Find(e.route); of != nil {
		return of.Upstream
	}
	return Upstream{}
}

// fallback checks that no fallback is one of our own listeners, and warns if one is the upstream itself.
func (c *checker) fallback() {
	for i := range c.r.Fallback.list {
		c.fallbackEntry(&c.r.Fallback.list[i])
	}
}

// urlAfterComma matches what may have been meant as an entry after a fixed response.
var urlAfterComma = regexp.MustCompile(`,\s*(https?://|unix:/|route:)`)

func (c *checker) fallbackEntry(e *FallbackEntry) {
	of := c.s.Find(e.route)
	switch {
	case e.route != "" && of == nil:
		c.errorf("FALLBACK", e.String(), "there is no route %s; %sROUTES lists the routes", e.route, Prefix)
		return
	case of == c.r && c.own("FALLBACK"):
		c.errorf("FALLBACK", e.String(), "a route cannot be its own fallback")
		return
	case e.status != 0 && urlAfterComma.MatchString(e.body):
		c.warnf("FALLBACK", e.String(), "everything after %d: is the body of the response, the text after the comma too; put the fixed response last", e.status)
	case of == c.r:
		return // inherited: routes in the list do not fall back to themselves
	}
	to := c.s.fallbackUpstream(e)
	if !to.Set() {
		return
	}
	for _, listen := range c.ours {
		if to.reaches(listen) {
			c.errorf("FALLBACK", to.String(), "%s", c.ownListener(listen))
			return
		}
	}
	if to.String() == c.r.Upstream.String() && (of == nil || of.RequestHeadersFile == c.r.RequestHeadersFile) {
		c.warnf("FALLBACK", to.String(), "is the upstream itself, so both fail at the same time")
	}
}

// fallsBackTo reports whether some other route has r among its fallbacks.
func (s *Settings) fallsBackTo(r *Route) bool {
	return slices.ContainsFunc(s.All(), func(other *Route) bool {
		return other != r && slices.ContainsFunc(other.Fallback.list, func(e FallbackEntry) bool { return e.route == r.Name })
	})
}
