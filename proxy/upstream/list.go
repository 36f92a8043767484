package upstream

import (
	"fmt"
	"strings"
)

// maxListedTargets limits the targets of a list; use a name for more.
const maxListedTargets = 64

// ParseTarget parses http://host[:port], https://host[:port] (HTTP/2 or HTTP/1.1, by ALPN),
// h2c://host[:port] (HTTP/2 without TLS), h2://host[:port] (HTTP/2 over TLS) or unix:/path. Each
// scheme except unix also has a form http+srv://name, for a name with SRV records (RFC 2782). All
// but unix may end with a path, which is prepended to that of every request. Several of one scheme
// and path, separated by commas, are the addresses of one upstream. A single final slash is
// allowed.
//
// Anything else is an error that names the problem: another scheme, user information, a
// query or fragment, a path that is not in normal form, an empty or malformed host, a port outside [1, 65535], a unix
// path that is relative or longer than 107 bytes. An https target verifies against the
// system's certificates unless UseTLS changes that. Nothing is resolved or opened.
func ParseTarget(s string) (Target, error) {
	parts := splitList(s)
	t, err := parseOne(parts[0])
	if len(parts) == 1 || err != nil {
		return t, err
	}
	if len(parts) > maxListedTargets {
		return Target{}, fmt.Errorf("upstream %q: more than %d addresses; use one name that resolves to all of them", redact(s), maxListedTargets)
	}
	seen := map[string]bool{t.url(): true}
	for _, part := range parts[1:] {
		o, err := parseOne(part)
		switch {
		case err != nil:
			return Target{}, err
		case seen[o.url()]:
			return Target{}, fmt.Errorf("upstream %q: %s is listed twice", redact(s), o.url())
		case o.Network != t.Network || o.Protocol != t.Protocol || (o.TLS == nil) != (t.TLS == nil):
			return Target{}, fmt.Errorf("upstream %q: all addresses of a list must have the same scheme", redact(s))
		case o.BasePath != t.BasePath:
			return Target{}, fmt.Errorf("upstream %q: all addresses of a list must have the same path", redact(s))
		}
		seen[o.url()] = true
		t.MoreTargets = append(t.MoreTargets, o)
	}
	return t, nil
}

// splitList splits at commas, except those in a socket's path.
func splitList(s string) []string {
	parts := strings.Split(s, ",")
	whole := parts[:1]
	for _, p := range parts[1:] {
		begin := strings.TrimLeft(p, " ")
		if strings.HasPrefix(parts[0], "unix:") && !strings.HasPrefix(begin, "unix:") {
			whole[len(whole)-1] += "," + p
			continue
		}
		whole = append(whole, begin)
	}
	return whole
}
