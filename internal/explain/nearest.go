package explain

import (
	"fmt"
	"strings"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/route"
)

// Near is the route that comes nearest to a request that no route matches.
type Near struct {
	Route string `json:"route"`
	Why   string `json:"why"` // what of the request it does not match
}

// nearest returns the route with the fewest matchers that the request fails, and of these the one whose path
// begins most like that of the request; nil if there are no routes.
func nearest(s *config.Settings, listener string, q *http1.Request, fields route.HeaderLookup) *Near {
	var best *Near
	bestScore := 0
	for i := range s.Routes {
		r := &s.Routes[i]
		m := r.Match(s)
		if m.Never {
			continue
		}
		why := mismatches(&m, listener, q, fields)
		score := len(why)*1000 - common(m.Path, string(q.Path))
		if best == nil || score < bestScore {
			best, bestScore = &Near{r.Name, strings.Join(why, "; ")}, score
		}
	}
	return best
}

// mismatches returns why a request does not match, matcher by matcher.
func mismatches(m *route.Match, listener string, q *http1.Request, fields route.HeaderLookup) (why []string) {
	takes := func(only route.Match) bool {
		table, err := route.New([]route.Rule[bool]{{Name: "only", Match: only, Value: true}}, false)
		return err != nil || table.Find(listener, q.Authority, q.Path, q.Method, fields)
	}
	if m.Listen != "" && m.Listen != listener {
		why = append(why, "it has its own listener "+m.Listen)
	}
	if m.Path != "" && !takes(route.Match{Path: m.Path}) {
		why = append(why, pathWhy(m, string(q.Path)))
	}
	if m.Host != "" && !takes(route.Match{Host: m.Host}) {
		why = append(why, fmt.Sprintf("its host is %s, not %s", m.Host, q.Authority))
	}
	if len(m.Methods) > 0 && !takes(route.Match{Methods: m.Methods}) {
		why = append(why, fmt.Sprintf("its methods are %s", strings.Join(m.Methods, ",")))
	}
	if m.Header != "" && !takes(route.Match{Header: m.Header}) {
		why = append(why, "the request lacks its header "+m.Header)
	}
	if m.Model != "" && !takes(route.Match{Model: m.Model}) {
		why = append(why, "the request does not name its model "+m.Model)
	}
	return why
}

// pathWhy explains why a path does not match, and which pattern would.
func pathWhy(m *route.Match, path string) string {
	path, _, _ = strings.Cut(path, "?")
	why := fmt.Sprintf("its path %s does not match %s", m.Path, path)
	for _, pattern := range m.Paths() {
		bare := strings.TrimSuffix(pattern, "/")
		switch {
		case strings.EqualFold(pattern, path):
			return why + ", since paths are case-sensitive"
		case pattern == path+"/" || bare == strings.TrimSuffix(path, "/") && bare != "":
			return why + "; paths with and without a slash at the end differ"
		case bare != "" && !strings.HasSuffix(pattern, "*") && strings.HasPrefix(path, bare+"/"):
			return why + "; " + bare + "/* would match it and everything below " + bare
		}
	}
	return why
}

// common returns how many bytes the beginnings of one of the patterns and of a path share, whatever their
// case.
func common(patterns, path string) (most int) {
	patterns, path = strings.ToLower(patterns), strings.ToLower(path)
	for pattern := range strings.SplitSeq(patterns, ",") {
		n := 0
		for n < len(pattern) && n < len(path) && pattern[n] == path[n] {
			n++
		}
		most = max(most, n)
	}
	return most
}
