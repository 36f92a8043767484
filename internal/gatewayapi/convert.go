package gatewayapi

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/retryproxy/retryproxy/internal/config/configfile"
)

// converter converts the objects of a file to settings.
type converter struct {
	*file
	result  Result
	budgets map[string][]setting   // by Service, as namespace/name
	seen    map[condition]bool     // see normalized
	torn    map[sidesOf]*condition // the first on each side
	names   map[string]place       // of the routes created
	made    int                    // number of conditions of all rules
}

// setting is one setting of a route, with its line in the file.
type setting struct {
	key, value string
	line       int
}

func newConverter(f *file) *converter {
	return &converter{file: f, result: Result{Lost: f.lost}, budgets: map[string][]setting{}, seen: map[condition]bool{}, torn: map[sidesOf]*condition{}, names: map[string]place{}}
}

func (c *converter) convert() {
	for _, p := range c.policies {
		c.policy(p)
	}
	for _, r := range inOrder(c.routes) {
		c.route(r)
	}
}

// What is left out because of something lost.
const (
	theRoute = "the HTTPRoute"
	theRule  = "the rule"
	theMatch = "the match"
	theField = "the field"
)

// lose records something without an equivalent.
func (c *converter) lose(at place, leftOut, why string, args ...any) {
	c.result.Lost = append(c.result.Lost, Lost{at.String(), fmt.Sprintf(why, args...), leftOut})
}

// loseUnknown records the unknown fields in v and reports whether there are any.
func (c *converter) loseUnknown(v any, leftOut string) bool {
	list := unknowns(v)
	for _, at := range list {
		c.lose(at, leftOut, "retryproxy has nothing for this field")
	}
	return len(list) > 0
}

func (c *converter) wrong(at place, format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%v: %w", at, fmt.Errorf(format, args...)))
}

func (c *converter) route(r *httpRoute) {
	lost := c.loseUnknown(r.Object, theRoute)
	lost = c.loseUnknown(r.Spec.Object, theRoute) || lost
	lost = c.loseUnknown(r.Spec.ParentRefs, theRoute) || lost
	for _, parent := range r.Spec.ParentRefs {
		if parent.Kind != "" && parent.Kind != "Gateway" {
			c.lose(parent.place, theRoute, "a parent of kind %s limits the rules to its requests, and retryproxy does not look at parents; write its host names under hostnames", parent.Kind)
			lost = true
		}
	}
	if lost {
		return
	}
	for i := range r.Spec.Rules {
		c.rule(r, i)
	}
}

// rule creates the routes of one rule. It creates none if a part is lost that determines what
// happens to its requests.
func (c *converter) rule(r *httpRoute, index int) {
	from := &r.Spec.Rules[index]
	s := &ruleSettings{converter: c, route: r, rule: from}
	// Read all parts, so that all problems are reported.
	whole := !c.loseUnknown(from.Object, theRule)
	whole = s.backends() && whole
	whole = s.filters(from.Filters) && whole
	whole = s.finishRewrite() && whole
	s.timeouts()
	s.retry()
	conditions := c.conditions(r, from)
	if !whole {
		return
	}
	base := r.Metadata.Name + "-" + fmt.Sprint(index)
	if from.Name != "" {
		base = r.Metadata.Name + "-" + from.Name
	}
	if namespace := r.Metadata.namespace(); namespace != defaultNamespace {
		base = namespace + "-" + base
	}
	groups := group(c.reachable(conditions))
	for i, g := range groups {
		name := base
		if len(groups) > 1 {
			name = fmt.Sprintf("%s-%d", base, i)
		}
		c.add(routeName(name), from.place, append(g.settings(from.line), s.list...))
		if g.takesAll() {
			c.result.CatchAll = s.upstream
		}
	}
}

// add adds a route with its settings.
func (c *converter) add(name string, at place, list []setting) {
	word := configfile.RouteWord(name)
	if other, taken := c.names[word]; taken {
		c.wrong(at, "its route would be named %s, as that of %v; rename one of them", name, other)
		return
	}
	c.names[word] = at
	c.result.Routes = append(c.result.Routes, name)
	for _, s := range list {
		c.result.Pairs = append(c.result.Pairs, configfile.Pair{Name: configfile.Prefix + "ROUTE_" + word + "_" + s.key, Value: s.value, Line: s.line})
	}
}

// maxName is the maximum length of a route name; longer names are cut and end in a hash.
const maxName = 63

// routeName derives the name of a route from that of objects: letters and digits with single dashes
// between them.
func routeName(name string) string {
	parts := strings.FieldsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
	joined := strings.Join(parts, "-")
	if len(joined) <= maxName {
		return joined
	}
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte(name)))[:8]
	return strings.TrimRight(joined[:maxName-1-len(hash)], "-") + "-" + hash
}
