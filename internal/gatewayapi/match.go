package gatewayapi

import (
	"slices"
	"strings"

	"github.com/retryproxy/retryproxy/proxy/route"
)

// condition is one alternative of a rule's matches, in the form of our settings. Empty parts match
// everything; the path is never empty.
type condition struct {
	sameRequests
	method string
	header string // Name=value
	at     place  // of the match
}

// sameRequests are host and path. Conditions with equal ones differ by method and header.
type sameRequests struct{ host, path string }

// everything is the path of a rule without matches.
const everything = "/*"

// maxAllConditions limits the conditions of all rules: two for each of the ten thousand rules that
// maxValues is for. Without it, a list of host names would multiply with every rule of its file.
const maxAllConditions = 2 * 10_000

// conditions returns the alternatives of a rule that have an equivalent.
func (c *converter) conditions(r *httpRoute, from *rule) []*condition {
	hosts := r.Spec.Hostnames
	if len(hosts) == 0 {
		hosts = []string{""}
	}
	matches := from.Matches
	if len(matches) == 0 {
		matches = []match{{Object: from.Object}}
		matches[0].unknown = nil
	}
	if c.made += len(hosts) * len(matches); c.made > maxAllConditions {
		c.wrong(from.place, "the rules up to here have more than %d host names times matches", maxAllConditions)
		return nil
	}
	var all []*condition
	for i := range matches {
		one, ok := c.condition(&matches[i])
		for _, host := range hosts {
			if alternative := one; ok {
				alternative.host = strings.ToLower(host)
				all = append(all, &alternative)
			}
		}
	}
	return slices.DeleteFunc(all, func(one *condition) bool { return !c.isValid(one) })
}

// condition converts a match, without host. ok is false if it has no equivalent.
func (c *converter) condition(m *match) (one condition, ok bool) {
	ok = !c.loseUnknown(m, theMatch)
	one = condition{sameRequests: sameRequests{path: everything}, method: m.Method, at: m.place}
	if m.Path != nil {
		var fits bool
		one.path, fits = c.pathPattern(m.Path)
		ok = ok && fits
	}
	if len(m.QueryParams) > 0 {
		c.lose(m.in("queryParams"), theMatch, "a route does not match query parameters")
		ok = false
	}
	headers := slices.Clone(m.Headers)
	for i := len(headers) - 1; i > 0; i-- { // of entries with the same name only the first counts
		if slices.ContainsFunc(headers[:i], func(h valueMatch) bool { return strings.EqualFold(h.Name, headers[i].Name) }) {
			headers = slices.Delete(headers, i, i+1)
		}
	}
	switch {
	case len(headers) > 1:
		c.lose(m.in("headers"), theMatch, "a route matches one header")
		return one, false
	case len(headers) == 1:
		h := headers[0]
		if h.Type != "" && h.Type != "Exact" {
			c.lose(h.place, theMatch, "a route matches a header exactly, not by %s", h.Type)
			return one, false
		}
		one.header = h.Name + "=" + h.Value
	}
	return one, ok
}

// pathPattern returns the pattern of a path match.
func (c *converter) pathPattern(m *valueMatch) (pattern string, ok bool) {
	value := m.Value
	if value == "" {
		value = "/"
	}
	switch m.Type {
	case "", "PathPrefix", "Exact":
	default:
		c.lose(m.place, theMatch, "a route matches a path exactly or by its prefix, not by %s", m.Type)
		return "", false
	}
	if !strings.HasPrefix(value, "/") || strings.Contains(value, "//") {
		c.wrong(m.in("value"), "expected a path that begins with / and has no empty segment, found %q", value)
		return "", false
	}
	value = strings.NewReplacer("*", "%2A", ",", "%2C").Replace(value) // literal in Gateway API
	if m.Type == "Exact" {
		return value, true
	}
	return strings.TrimSuffix(value, "/") + "/*", true
}

// isValid reports whether a route can have the condition, and records why not.
func (c *converter) isValid(one *condition) bool {
	_, err := route.New([]route.Rule[int]{{Match: one.match(), Name: "made"}}, 0)
	if err != nil {
		reason := strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\n", "; "), "route made: ")
		c.lose(one.at, theMatch, "%s", reason)
	}
	return err == nil
}

func (one *condition) match() route.Match {
	m := route.Match{Host: one.host, Path: one.path, Header: one.header}
	if one.method != "" {
		m.Methods = []string{one.method}
	}
	return m
}

// reachable returns the conditions that requests can reach. Of equal ones, the first gets all
// requests, as in Gateway API.
//
// If a request meets several conditions, both APIs choose the one with the more specific host, then
// path. After that, Gateway API prefers a match with a method, and a route one with a header. A
// condition for which that makes a difference is lost. Within a rule it makes none.
func (c *converter) reachable(conditions []*condition) []*condition {
	var kept []*condition
	for _, one := range conditions {
		if c.seen[one.normalized()] {
			continue
		}
		if other, torn := c.torn[sidesOf{one.sameRequests, !one.byMethod()}]; torn && one.byMethod() != one.byHeader() {
			c.lose(one.at, theMatch, "a request may also meet the match of %v, and Gateway API prefers the method where retryproxy prefers the header", other.at)
			continue
		}
		c.seen[one.normalized()] = true
		kept = append(kept, one)
	}
	for _, one := range kept {
		side := sidesOf{one.sameRequests, one.byMethod()}
		if _, have := c.torn[side]; !have && one.byMethod() != one.byHeader() {
			c.torn[side] = one
		}
	}
	return kept
}

// normalized returns what conditions have in common that match the same requests.
func (one *condition) normalized() condition {
	name, value, _ := strings.Cut(one.header, "=")
	return condition{sameRequests: one.sameRequests, method: one.method, header: strings.ToLower(name) + "=" + value}
}

// sidesOf are the conditions for a host and path that have a method and no header, or a header and no
// method. A request can meet one of each.
type sidesOf struct {
	sameRequests
	method bool
}

func (one *condition) byMethod() bool { return one.method != "" && one.header == "" }
func (one *condition) byHeader() bool { return one.method == "" && one.header != "" }

// conditionGroup is conditions that one route can express: each host with each path.
type conditionGroup struct {
	hosts, paths   []string
	method, header string
}

// group joins conditions into as few routes as possible, in their order.
func group(conditions []*condition) []*conditionGroup {
	var groups []*conditionGroup
	for _, one := range conditions { // one group for each host, method and header
		i := slices.IndexFunc(groups, func(g *conditionGroup) bool {
			return g.hosts[0] == one.host && g.method == one.method && g.header == one.header
		})
		if i < 0 {
			i = len(groups)
			groups = append(groups, &conditionGroup{hosts: []string{one.host}, method: one.method, header: one.header})
		}
		groups[i].paths = append(groups[i].paths, one.path)
	}
	var joined []*conditionGroup
	for _, g := range groups { // hosts with equal paths become one group
		i := slices.IndexFunc(joined, func(j *conditionGroup) bool {
			return j.method == g.method && j.header == g.header && slices.Equal(j.paths, g.paths)
		})
		if i < 0 {
			joined = append(joined, g)
			continue
		}
		joined[i].hosts = append(joined[i].hosts, g.hosts...)
	}
	return joined
}

// settings returns the settings that match the group's requests.
func (g *conditionGroup) settings(line int) []setting {
	var list []setting
	add := func(key, value string) {
		if value != "" {
			list = append(list, setting{key, value, line})
		}
	}
	add("HOST", strings.Join(g.hosts, ","))
	add("PATH", strings.Join(g.paths, ","))
	add("METHODS", g.method)
	add("HEADER", g.header)
	return list
}

// takesAll reports whether the group leaves no request for the default route.
func (g *conditionGroup) takesAll() bool {
	return g.method == "" && g.header == "" && slices.Contains(g.hosts, "") && slices.Contains(g.paths, everything)
}
