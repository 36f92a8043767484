package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// maxSetHeaders is the maximum size of the headers that one setting or file sets. It is half of
// what common servers accept as all headers of a request.
const maxSetHeaders = 8 << 10

// HeaderField is a header of HeaderFields.
type HeaderField struct{ Name, Value string }

// isSecret reports whether the header contains a credential, by its name. In doubt it returns true.
func (f *HeaderField) isSecret() bool {
	name := strings.ToLower(f.Name)
	return slices.ContainsFunc([]string{"auth", "cookie", "token", "secret", "password", "key", "credential", "signature"}, func(word string) bool { return strings.Contains(name, word) })
}

// HeaderFields are headers that are set.
type HeaderFields []HeaderField

// parseHeaderFields parses "Name: value, Name: value", or none. A comma begins the next header if a
// name and a colon follow it, so that values may have commas.
func parseHeaderFields(text string) (HeaderFields, error) {
	var errs []error
	fields := HeaderFields{}
	for i, part := range splitHeaders(text) {
		field, err := parseHeaderField(part)
		if err != nil {
			errs = append(errs, fmt.Errorf("entry %d %w", i+1, err))
			continue
		}
		fields = append(fields, field)
	}
	if len(text) > maxSetHeaders {
		errs = append(errs, fmt.Errorf("has more than %d bytes", maxSetHeaders))
	}
	return fields, errors.Join(errs...)
}

// String is the inverse of parseHeaderFields.
func (h HeaderFields) String() string {
	var parts []string
	for _, f := range h {
		parts = append(parts, f.Name+": "+f.Value)
	}
	return orNone(strings.Join(parts, ", "))
}

// splitHeaders splits a list at the commas that a name and a colon follow.
func splitHeaders(s string) []string {
	if s = strings.TrimSpace(s); s == "" || s == "none" {
		return nil
	}
	var list []string
	for part := range strings.SplitSeq(s, ",") {
		name, _, colon := strings.Cut(part, ":")
		if len(list) > 0 && !(colon && isToken(strings.TrimSpace(name))) {
			list[len(list)-1] += "," + part
			continue
		}
		list = append(list, part)
	}
	return list
}

// parseHeaderField parses "Name: value". Its errors do not contain the value, which may be secret.
func parseHeaderField(s string) (HeaderField, error) {
	name, value, colon := strings.Cut(s, ":")
	f := HeaderField{strings.TrimSpace(name), strings.TrimSpace(value)}
	switch {
	case !colon || !isToken(f.Name):
		return f, errors.New("must be a name, a colon and a value, such as X-Env: prod")
	case f.Value == "":
		return f, errors.New("has no value after the colon")
	case strings.ContainsFunc(f.Value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return f, errors.New("has a control character in its value")
	}
	return f, nil
}

// HeaderList is a list of header names.
type HeaderList []string

// parseHeaderList parses names separated by commas, or none.
func parseHeaderList(text string) (HeaderList, error) {
	var errs []error
	names := HeaderList{}
	for _, name := range splitList(text) {
		switch {
		case name == "none":
		case !isToken(name):
			errs = append(errs, fmt.Errorf("%q is not a header name", name))
		default:
			names = append(names, name)
		}
	}
	return names, errors.Join(errs...)
}

// String is the inverse of parseHeaderList.
func (h HeaderList) String() string { return orNone(strings.Join(h, ",")) }

// masked returns the headers with secret values hidden, for people.
func (h HeaderFields) masked() HeaderFields {
	shown := slices.Clone(h)
	for i := range shown {
		if shown[i].isSecret() {
			shown[i].Value = "***"
		}
	}
	return shown
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// readHeaders reads a file with one header per line. Empty lines and lines that begin with # are
// ignored. Its errors name the line but never its content.
func readHeaders(file string) ([]HeaderField, error) {
	if file == "" {
		return nil, nil
	}
	text, err := readAtMost(file, maxSetHeaders+1)
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxSetHeaders:
		return nil, fmt.Errorf("the file has more than %d bytes", maxSetHeaders)
	}
	return parseHeaderLines(string(text))
}

func parseHeaderLines(text string) (fields []HeaderField, err error) {
	var errs []error
	n := 0
	for line := range strings.Lines(text) {
		n++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		field, err := parseHeaderField(line)
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d %w", n, err))
		} else if err := forward.CheckRequestHeader(field.Name); err != nil {
			errs = append(errs, fmt.Errorf("line %d: %s cannot be set: %w", n, field.Name, err))
		}
		fields = append(fields, field)
	}
	return fields, errors.Join(errs...)
}

// http1Headers converts headers to the data path's type.
func http1Headers(fields []HeaderField) (list []http1.Header) {
	for _, f := range fields {
		list = append(list, http1.NewHeader(f.Name, f.Value))
	}
	return list
}

// requestChanges returns the changes to requests for the route's upstream.
func (b *builder) requestChanges(r *Route) forward.HeaderChanges {
	return forward.NewHeaderChanges(http1Headers(r.RequestHeadersSet), r.RequestHeadersRemove).And(b.secretHeaders(r))
}

// publicChanges is requestChanges without secrets, which only the route's upstream may get.
func (b *builder) publicChanges(r *Route) forward.HeaderChanges {
	var public HeaderFields
	for _, f := range r.RequestHeadersSet {
		if !f.isSecret() {
			public = append(public, f)
		}
	}
	return forward.NewHeaderChanges(http1Headers(public), r.RequestHeadersRemove)
}

// secretHeaders reads the route's file of headers, once for all routes that use it.
func (b *builder) secretHeaders(r *Route) []http1.Header {
	file := r.RequestHeadersFile
	headers, known := b.secrets[file]
	if !known {
		fields, err := readHeaders(file)
		if err != nil {
			b.problems.add(Problem{Variable: r.Blame("REQUEST_HEADERS_FILE"), Value: file, Message: err.Error()})
		}
		headers = http1Headers(fields)
		b.secrets[file] = headers
	}
	return headers
}

// headers checks that the headers may be changed.
func (c *checker) headers() {
	r := c.r
	for _, list := range []struct {
		key   string
		names []string
		check func(name string) error
	}{
		{"REQUEST_HEADERS_SET", names(r.RequestHeadersSet), forward.CheckRequestHeader},
		{"REQUEST_HEADERS_REMOVE", r.RequestHeadersRemove, forward.CheckRequestHeader},
		{"RESPONSE_HEADERS_SET", names(r.ResponseHeadersSet), forward.CheckResponseHeader},
		{"RESPONSE_HEADERS_REMOVE", r.ResponseHeadersRemove, forward.CheckResponseRemoval},
	} {
		for _, name := range list.names {
			if err := list.check(name); err != nil && c.own(list.key) {
				c.errorf(list.key, name, "cannot be changed: %v", err)
			}
		}
	}
	for i := range r.RequestHeadersSet {
		if f := &r.RequestHeadersSet[i]; f.isSecret() && c.own("REQUEST_HEADERS_SET") {
			c.warnf("REQUEST_HEADERS_SET", f.Name, "sounds like a secret; put the header into the file of RETRYPROXY_REQUEST_HEADERS_FILE: then only the route's own upstream gets it, and the environment does not show it")
		}
	}
	if r.RequestHeadersFile != "" && c.own("REQUEST_HEADERS_FILE") && r.Upstream.Set() && !r.Upstream.TLS() && !r.Upstream.Loopback() {
		c.warnf("REQUEST_HEADERS_FILE", r.RequestHeadersFile, "is sent to %s without TLS", r.Upstream)
	}
}

func names(fields []HeaderField) (list []string) {
	for _, f := range fields {
		list = append(list, f.Name)
	}
	return list
}
