package forward

import (
	"errors"
	"slices"
	"strings"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// HeaderChanges are the headers that the configuration sets and removes, in one direction. The
// zero value changes nothing. It is immutable and safe for concurrent use.
type HeaderChanges struct {
	lines  string   // "Name: value" and CRLF for each that is set
	block  string   // the same as fields of a block
	hidden [][]byte // names that are not forwarded: what is set, and what is removed
}

// NewHeaderChanges returns the changes that replace the headers of set and remove those named in
// remove. A name may be set several times, as Set-Cookie is. Names and values must be valid, and
// CheckRequestHeader or CheckResponseHeader must be nil for each name.
func NewHeaderChanges(set []http1.Header, remove []string) HeaderChanges {
	var c HeaderChanges
	var lines []byte
	for i := range set {
		lines = set[i].AppendLine(lines)
		c.hide(set[i].Name)
	}
	for _, name := range remove {
		c.hide([]byte(name))
	}
	c.setLines(string(lines))
	return c
}

// setLines sets what is set.
func (c *HeaderChanges) setLines(lines string) {
	var block []byte
	for line := range strings.Lines(lines) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\r\n"), ": ")
		block = wire.AppendHeader(wire.Block, block, name, value)
	}
	c.lines, c.block = lines, string(block)
}

// set returns what is set, in that form.
func (c *HeaderChanges) set(form wire.Form) string {
	if form == wire.Block {
		return c.block
	}
	return c.lines
}

// Hidden returns the changes without what is set.
func (c HeaderChanges) Hidden() HeaderChanges { return HeaderChanges{hidden: c.hidden} }

// Hiding returns c, which hides also what other hides: what a route does not show its own upstream, or
// replaces there, is not for its fallback either.
func (c HeaderChanges) Hiding(other HeaderChanges) HeaderChanges {
	c.hidden = slices.Clone(c.hidden)
	for _, name := range other.hidden {
		c.hide(name)
	}
	return c
}

// Sets reports whether the changes set a header of that name.
func (c *HeaderChanges) Sets(name string) bool {
	for line := range strings.Lines(c.lines) {
		if set, _, _ := strings.Cut(line, ":"); strings.EqualFold(set, name) {
			return true
		}
	}
	return false
}

// Lines returns what is set, each as "Name: value" and CRLF. Values may be secret.
func (c *HeaderChanges) Lines() string { return c.lines }

// hides reports whether a header of that name is not forwarded. A name that some server takes for a
// hidden one is hidden too: X_User for X-User.
func (c *HeaderChanges) hides(name []byte) bool {
	for _, h := range c.hidden {
		if http1.AreAlike(h, name) {
			return true
		}
	}
	return false
}

// Trailers returns the trailers that are forwarded. They share the list's memory.
func (c *HeaderChanges) Trailers(list []http1.Header) []http1.Header {
	if len(c.hidden) == 0 || len(list) == 0 {
		return list
	}
	kept := make([]http1.Header, 0, len(list))
	for i := range list {
		if !c.hides(list[i].Name) {
			kept = append(kept, list[i])
		}
	}
	return kept
}

func (c *HeaderChanges) hide(name []byte) {
	if !isListed(c.hidden, name) {
		c.hidden = append(c.hidden, name)
	}
}

// And returns c and the changes of more, whose set headers replace those of c.
func (c HeaderChanges) And(set []http1.Header) HeaderChanges {
	more := NewHeaderChanges(set, nil)
	var lines strings.Builder
	for line := range strings.Lines(c.lines) {
		if name, _, _ := strings.Cut(line, ":"); !isListed(more.hidden, []byte(name)) {
			lines.WriteString(line)
		}
	}
	kept := more.Hiding(c)
	kept.setLines(lines.String() + more.lines)
	return kept
}

var (
	errOurs = errors.New("retryproxy writes this header itself")
	errHost = errors.New("RETRYPROXY_UPSTREAM_HOST sets this header")
	errKey  = errors.New("RETRYPROXY_RETRY_METHODS depends on this header")
)

// CheckRequestHeader returns why a header of requests can be neither set nor removed, or nil.
func CheckRequestHeader(name string) error {
	switch id := http1.LookupHeaderName([]byte(name)); {
	case id == http1.Host:
		return errHost
	case id == http1.IdempotencyKey:
		return errKey
	case requestHandling[id] != passThrough:
		return errOurs
	}
	return nil
}

// CheckResponseHeader returns why a header of responses cannot be set, or nil.
func CheckResponseHeader(name string) error {
	if responseHandling[http1.LookupHeaderName([]byte(name))] != passThrough {
		return errOurs
	}
	return nil
}

// CheckResponseRemoval returns why a header of responses cannot be removed, or nil. Those with which
// the proxy reports what it did can be.
func CheckResponseRemoval(name string) error {
	switch http1.LookupHeaderName([]byte(name)) {
	case http1.XRetryproxyAttempts, http1.XRetryproxyReason, http1.XRetryproxyOther, http1.XRequestID, http1.XShouldRetry:
		return nil
	}
	return CheckResponseHeader(name)
}
