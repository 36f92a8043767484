// Package route answers one question: which route takes this request?
//
// Give New the rules and what serves the rest, then ask Find for every
// request. Before the request is forwarded ask Ambiguous as well: where it says
// true, an upstream that tidies paths could take the request for one that
// belongs to another route, and the request has to be refused with 400. Every
// other path may be forwarded byte for byte.
//
// What is matched:
//
//   - Host: without regard to case, to a trailing dot and, unless the rule names
//     one, to the port. "*.example.com" stands for any name below example.com,
//     however deep, and not for example.com itself.
//   - Path: segment by segment, each percent-decoded, so that "/caf%C3%A9" and
//     a rule for "/café" meet. An encoded slash never separates segments.
//     "/search/*" takes "/search", "/search/" and all below.
//   - Header: the first field of that name, compared byte for byte.
//   - Methods: exactly those named; GET does not stand for HEAD.
//
// The most specific rule wins: a full host name before a wildcard (the longer
// before the shorter) before any host; then the longer path, an exact one
// before a prefix; then a header with value before a header before none; then
// named methods before any. Two rules that differ only in the name of their
// header can both match; the one listed first wins. Rules between which nothing
// decides are an error of New.
//
// The cost of Find depends on the length of the path and on the number of
// different header names that rules for one and the same path ask for, not on
// the number of rules. It allocates nothing.
package route

import (
	"errors"
	"fmt"
)

// Match says which requests a rule takes. Empty fields match everything.
type Match struct {
	// Host is a name ("example.com"), a wildcard ("*.example.com") or an
	// address ("10.0.0.1", "[::1]"), each with an optional ":port" that must
	// then stand in the request's Host as well.
	Host string
	// Path is exact ("/a/b") or a prefix ("/a/*", also matching "/a"). It has
	// to be in normal form: nothing that Ambiguous would have to look into.
	Path string
	// Methods are compared byte for byte.
	Methods []string
	// Header is "Name" (the field is there) or "Name=value" (its first value
	// is exactly that).
	Header string
	// Listen is the listener that the rule belongs to, as given to Find; ""
	// is the main one. No rule is for all listeners.
	Listen string
}

// HeaderLookup finds the first field of a name, without regard to case.
// *http1.Request is one.
type HeaderLookup interface {
	Lookup(name string) (value []byte, ok bool)
}

// Rule gives a value to the requests that match.
type Rule[T any] struct {
	Match
	Value T
	Name  string // names the rule in errors
}

// Table finds the value of the rule that takes a request. It is immutable
// and safe for concurrent use.
type Table[T any] struct {
	index  index
	values []T  // by ref; the first is the fallback
	paths  bool // some rule has a path
}

// New builds the table; fallback serves what no rule takes. It keeps nothing
// of rules but the values. The error joins all that is wrong with all rules:
// each malformed pattern, each pair of rules between which nothing decides,
// and each rule of the main listener without any condition, as the fallback
// could never be reached beside it.
func New[T any](rules []Rule[T], fallback T) (*Table[T], error) {
	t := &Table[T]{index: newIndex(), values: make([]T, len(rules)+1)}
	t.values[0] = fallback
	var errs []error
	for i := range rules {
		r := &rules[i]
		t.values[i+1] = r.Value
		p, wrong := compile(&r.Match)
		for _, w := range wrong {
			w.Rule = r.Name
			errs = append(errs, w)
		}
		if p == nil {
			continue
		}
		t.paths = t.paths || p.hasPath
		for _, c := range t.index.add(p, ref(i+1)) {
			errs = append(errs, &RuleError{Rule: r.Name, Err: fmt.Errorf("the same match%s as route %s", c.where(), rules[c.with-1].Name)})
		}
	}
	t.index.link()
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return t, nil
}

// HasPaths says whether some rule has a path. Where none has, and no prefix
// is stripped, no path is Ambiguous.
func (t *Table[T]) HasPaths() bool { return t.paths }

// Find gives the value of the rule that takes the request. listen is the
// listener that the request came in by, host its authority as the client
// wrote it (empty matches only rules without host), path the path without
// query, "*" for the asterisk form, which only rules without path take. h
// may be nil. Find keeps none of its arguments.
func (t *Table[T]) Find(listen string, host, path, method []byte, h HeaderLookup) T {
	q := query{host: host, path: path, method: method, header: h}
	return t.values[t.index.find(listen, &q)]
}
