package route

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/retryproxy/retryproxy/policy"
)

// pattern is a parsed Match.
type pattern struct {
	listen string

	host   string // in lower case, without "*."; "" for any
	wild   bool
	port   bool // host ends in ":port"
	labels int  // of the host

	hasPath  bool
	segments []string // decoded, or anySegment; including the empty last one of "/a/"
	prefix   bool

	header   string
	value    string
	hasValue bool

	methods []string
}

// maxSegment limits a decoded segment of a pattern, in bytes, so that requests can be
// decoded on the stack. Longer ones match no pattern.
const maxSegment = 256

// anySegment stands for a "*" within a path. No decoded segment contains a slash.
const anySegment = "/"

// RuleError names the rule that is wrong, and the field of its Match; "" for all of it. New
// joins them.
type RuleError struct {
	Rule  string
	Field string // of Match
	Err   error
}

// Error returns the rule and the cause.
func (e *RuleError) Error() string { return "route " + e.Rule + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *RuleError) Unwrap() error { return e.Err }

// compile checks and parses a match, or returns all its errors, without the rule's name. The result
// has a pattern for each host with each path.
func compile(m *Match) ([]*pattern, []*RuleError) {
	if m.Host == "" && m.Path == "" && m.Header == "" && m.Model == "" && m.Listen == "" && len(m.Methods) == 0 {
		return nil, []*RuleError{{Err: errors.New("a route without host, path, header, model, methods or listener would match every request")}}
	}
	common := pattern{listen: m.Listen, methods: m.Methods}
	var wrong []*RuleError
	check := func(field string, err error) {
		if err != nil {
			wrong = append(wrong, &RuleError{Field: field, Err: err})
		}
	}
	check("Header", common.setHeader(m.Header))
	check("Methods", checkMethods(m.Methods))
	if m.Header != "" && m.Model != "" {
		check("Model", errors.New("a route has a header or a model, not both"))
	}
	var withHosts, all []*pattern
	for _, host := range m.Hosts() {
		p := common
		check("Host", notEmpty(host, m.Host))
		check("Host", p.setHost(host))
		withHosts = append(withHosts, &p)
	}
	for _, path := range m.Paths() {
		var withPath pattern
		check("Path", notEmpty(path, m.Path))
		check("Path", withPath.setPath(path))
		for _, p := range withHosts {
			q := *p
			q.hasPath, q.segments, q.prefix = withPath.hasPath, withPath.segments, withPath.prefix
			all = append(all, &q)
		}
	}
	if m.Model != "" {
		all = withModels(m, all, check)
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	return all, nil
}

// withModels returns the patterns with each model.
func withModels(m *Match, patterns []*pattern, check func(field string, err error)) (all []*pattern) {
	for _, model := range m.Models() {
		check("Model", notEmpty(model, m.Model))
		if len(model) > maxModel {
			check("Model", fmt.Errorf("model %q: longer than %d bytes", model, maxModel))
		}
		for _, p := range patterns {
			q := *p
			q.header, q.value, q.hasValue = ModelKey, model, true
			all = append(all, &q)
		}
	}
	return all
}

// maxModel is how long a model may be, in bytes: what package tokens reads.
const maxModel = 128

// notEmpty returns an error for an empty alternative of a list: it would match everything.
func notEmpty(alternative, list string) error {
	if alternative == "" && list != "" {
		return fmt.Errorf("%q has an empty entry between two commas", list)
	}
	return nil
}

func (p *pattern) setHost(host string) error {
	if host == "" {
		return nil
	}
	bad := func(why string) error { return fmt.Errorf("host %q: %s", host, why) }
	if strings.Contains(host, "://") {
		return bad("is a URL; expected a host name")
	}
	name, wild := strings.CutPrefix(host, "*.")
	full, n, ok := foldHost(nil, []byte(name))
	if !ok {
		return bad("empty, or longer than a host name can be")
	}
	folded, port := string(full[:n]), string(full[n:])
	if port != "" {
		if _, err := strconv.ParseUint(port[1:], 10, 16); err != nil || port[1] == '0' {
			return bad("the port must be a number from 1 to 65535")
		}
	}
	if why := checkHost(folded, wild); why != "" {
		return bad(why)
	}
	p.host, p.wild, p.port = string(full), wild, port != ""
	p.labels = strings.Count(folded, ".") + 1
	return nil
}

// checkHost returns what is wrong with a lower-case host without port, or "".
func checkHost(name string, wild bool) string {
	if inner, ok := strings.CutPrefix(name, "["); ok {
		a, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		if err != nil || !strings.HasSuffix(inner, "]") || !a.Is6() || wild {
			return "brackets are for one IPv6 address"
		}
		return ""
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return "there must be 1 to 63 characters between two dots"
		}
		for i := range len(label) {
			if c := label[i]; !isAlnum(c) && c != '-' && c != '_' {
				return `a host has only letters, digits, "-", "_" and dots, and "*." only at its beginning`
			}
		}
	}
	return ""
}

func (p *pattern) setPath(path string) error {
	if path == "" {
		return nil
	}
	bad := func(why string) error { return fmt.Errorf("path %q: %s", path, why) }
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return bad(`it must begin with "/"`)
	}
	p.hasPath = true
	if rest == "*" {
		p.prefix = true
		return nil
	}
	rest, p.prefix = strings.CutSuffix(rest, "/*")
	if why := checkPath("/" + withoutStars(rest)); why != "" {
		return bad(why)
	}
	if p.prefix && (rest == "" || strings.HasSuffix(rest, "/")) {
		return bad("an empty segment")
	}
	for s := range strings.SplitSeq(rest, "/") {
		if s == "*" {
			p.segments = append(p.segments, anySegment)
			continue
		}
		var buf [maxSegment]byte
		d, ok := decodeSegment(buf[:], []byte(s))
		if !ok {
			return bad("a segment is too long")
		}
		p.segments = append(p.segments, string(d))
	}
	return nil
}

// withoutStars replaces the segments "*" of a path with plain ones.
func withoutStars(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if s == "*" {
			segments[i] = "x"
		}
	}
	return strings.Join(segments, "/")
}

// checkPath returns what is wrong with a path of a pattern, or "".
func checkPath(path string) string {
	for i := range len(path) {
		switch c := path[i]; {
		case c == '*':
			return `"*" must be a whole segment, between two slashes or at the end`
		case c <= ' ' || c == 0x7f || strings.IndexByte(`"<>^{|}?#`+"`", c) >= 0:
			return fmt.Sprintf("%q cannot stand in a path", string(rune(c)))
		case c == '%' && (i+2 >= len(path) || unhex[path[i+1]] < 0 || unhex[path[i+2]] < 0):
			return `"%" must be followed by two hexadecimal digits`
		}
	}
	if !IsPlain([]byte(path)) {
		return `"//", ".", "..", "\", ";", "%" and their encodings cannot be matched`
	}
	return ""
}

func (p *pattern) setHeader(h string) error {
	if h == "" {
		return nil
	}
	p.header, p.value, p.hasValue = strings.Cut(h, "=")
	switch {
	case !isToken(p.header):
		return fmt.Errorf("header %q: %q is not a header name", h, p.header)
	case p.hasValue && p.value == "":
		return fmt.Errorf(`header %q: a value must follow the "="`, h)
	case p.value != strings.Trim(p.value, " \t") || strings.ContainsFunc(p.value, isControl):
		return fmt.Errorf("header %q: no header can have that value", h)
	}
	return nil
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

func checkMethods(methods []string) error {
	var errs []error
	for i, m := range methods {
		switch meant := policy.MeantMethod(m); {
		case !isToken(m):
			errs = append(errs, fmt.Errorf("method %q: not a method", m))
		case meant != "":
			errs = append(errs, fmt.Errorf("method %q: methods are case-sensitive, write %s", m, meant))
		case slices.Contains(methods[:i], m):
			errs = append(errs, fmt.Errorf("method %q: named twice", m))
		}
	}
	return errors.Join(errs...)
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// isToken reports whether s is a token (RFC 9110 section 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		if !isAlnum(s[i]) && strings.IndexByte("!#$%&'*+-.^_`|~", s[i]) < 0 {
			return false
		}
	}
	return s != ""
}
