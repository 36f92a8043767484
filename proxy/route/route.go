// Package route finds the route of a request.
//
// Pass the rules and the fallback to New, then call Find for every request. Before the request is
// forwarded, call Ambiguous as well. If it returns true, an upstream that normalises paths could treat
// the request as one of another route, and it must be refused with 400. Every other path may be
// forwarded byte for byte.
//
// What is matched:
//
//   - Host: ignoring case, a trailing dot and, unless the rule has one, the port. "*.example.com"
//     matches any name below example.com, at any depth, but not example.com itself.
//   - Path: segment by segment, each percent-decoded, so that "/caf%C3%A9" matches a rule for "/café".
//     An encoded slash never separates segments. "/search/*" matches "/search", "/search/" and
//     everything below. A "*" within a path, as in "/users/*/orders", is one segment, not empty.
//   - Header: the first header of that name, compared byte for byte.
//   - Model: the member "model" of a JSON body, compared byte for byte. The caller finds it: see ModelKey.
//   - Methods: exactly those listed; GET does not include HEAD.
//
// The most specific rule wins. A full host name wins over a wildcard, a longer wildcard over a
// shorter one, and either over any host. Then paths are compared segment by segment: a name wins
// over "*" within the path, and either wins over the end of a prefix. Then a header with a value
// wins over a header without one, and either over none. Then listed methods win over any. Two
// rules that differ only in the name of their header can both match; the one listed first wins.
// Two rules that match exactly the same requests are an error of New.
//
// The cost of Find depends on the length of the path and on the number of different header names
// in rules for the same path, not on the number of rules. The exception are rules with "*" within
// a path that begin alike: each is tried at most once. Find does not allocate.
package route

import (
	"errors"
	"fmt"
	"strings"
)

// Match is the condition of a rule. Empty fields match everything.
type Match struct {
	// Host and Path may list several of what follows, separated by commas. A request matches if it
	// matches one of each.

	// Host is a name ("example.com"), a wildcard ("*.example.com") or an address
	// ("10.0.0.1", "[::1]"), each with an optional ":port" that the request's Host must
	// then have too.
	Host string
	// Path is exact ("/a/b") or a prefix ("/a/*", also matching "/a"). A "*" within it, as in
	// "/a/*/b", matches one segment that is not empty. It must be in normal
	// form: IsPlain must be true for it. A comma of its own is written "%2C".
	Path string
	// Methods are compared byte for byte.
	Methods []string
	// Header is "Name" (the header is present) or "Name=value" (its first value is exactly
	// that).
	Header string
	// Model is the model that the body names, or several separated by commas. A rule has this or
	// Header.
	Model string
	// Listen is the listener that the rule belongs to, as passed to Find; "" is the main
	// one. No rule applies to all listeners.
	Listen string
	// Never matches no request, whatever the other fields say.
	Never bool
}

// Hosts returns the alternatives of Host, at least one; "" for any host.
func (m *Match) Hosts() []string { return alternatives(m.Host) }

// Models returns the alternatives of Model, at least one; "" for any model.
func (m *Match) Models() []string { return alternatives(m.Model) }

// Paths returns the alternatives of Path, at least one; "" for any path.
func (m *Match) Paths() []string { return alternatives(m.Path) }

func alternatives(list string) []string {
	all := strings.Split(list, ",")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

// ModelKey is the name by which HeaderLookup is asked for the model in the body, if a rule has one. No
// header has that name.
const ModelKey = "json:model"

// HeaderLookup finds the first header of a name, ignoring case. *http1.Request implements
// it, for requests whose body names no model.
type HeaderLookup interface {
	Lookup(name string) (value []byte, ok bool)
}

// Rule assigns a value to the requests that match.
type Rule[T any] struct {
	Match
	Value T
	Name  string // identifies the rule in errors
}

// Table finds the value of the rule for a request. It is immutable and safe for concurrent
// use.
type Table[T any] struct {
	index  index
	values []T  // by ref; the first is the fallback
	paths  bool // some rule has a path
	models bool // some rule has a model
}

// New returns a table; fallback is the value for requests without a rule. It keeps only the
// values of rules. The error joins all problems of all rules: each malformed pattern, each
// pair of rules that match the same requests, and each rule of the main listener without
// any condition, since the fallback would be unreachable.
func New[T any](rules []Rule[T], fallback T) (*Table[T], error) {
	t := &Table[T]{index: newIndex(), values: make([]T, len(rules)+1)}
	t.values[0] = fallback
	var errs []error
	for i := range rules {
		r := &rules[i]
		t.values[i+1] = r.Value
		if r.Match.Never {
			continue
		}
		patterns, wrong := compile(&r.Match)
		for _, w := range wrong {
			w.Rule = r.Name
			errs = append(errs, w)
		}
		for _, p := range patterns {
			t.paths = t.paths || p.hasPath
			t.models = t.models || p.header == ModelKey
			for _, c := range t.index.add(p, ref(i+1)) {
				errs = append(errs, &RuleError{Rule: r.Name, Err: fmt.Errorf("matches the same requests%s as route %s", c.where(), rules[c.with-1].Name)})
			}
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return t, nil
}

// HasPaths reports whether some rule has a path. If none has, and no prefix is stripped, no
// path is ambiguous.
func (t *Table[T]) HasPaths() bool { return t.paths }

// HasModels reports whether some rule has a model. If none has, no body needs to be looked at.
func (t *Table[T]) HasModels() bool { return t.models }

// Find returns the value of the rule that matches the request. listen is the listener of
// the request. host is its authority as the client wrote it (empty matches only rules
// without host). path is the path without query, or "*" for the asterisk form, which only
// rules without path match. h may be nil. Find keeps none of its arguments.
func (t *Table[T]) Find(listen string, host, path, method []byte, h HeaderLookup) T {
	q := query{host: host, path: path, method: method, header: h}
	return t.values[t.index.find(listen, &q)]
}
