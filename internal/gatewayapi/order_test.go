package gatewayapi

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/internal/config/configfile"
	"github.com/retryproxy/retryproxy/proxy/route"
)

// request is a request to route.
type request struct {
	host, path, method string
	headers            map[string]string // by names in lower case
}

// Lookup implements route.HeaderLookup.
func (r *request) Lookup(name string) ([]byte, bool) {
	value, ok := r.headers[strings.ToLower(name)]
	return []byte(value), ok
}

// For any rules, requests go where Gateway API sends them: an independent implementation of its
// precedence agrees with the resulting routes.
func TestRequestsMeetTheRuleThatGatewayAPIChooses(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const files = 1000
	found, lost := 0, 0
	for range files {
		routes := randomRoutes(r)
		result, err := Convert([]byte(manifestOf(routes)))
		if err != nil {
			t.Fatal(err)
		}
		if len(result.Lost) > 0 {
			lost++
			continue
		}
		table := tableOf(t, &result)
		for range 40 {
			q := randomRequest(r)
			want := chosen(routes, &q)
			got := table.Find("", []byte(q.host), []byte(q.path), []byte(q.method), &q)
			if got != want {
				t.Fatalf("%+v: %q, expected %q, with\n%s", q, got, want, manifestOf(routes))
			}
			if got != "" {
				found++
			}
		}
	}
	if found < files || lost > files/4 {
		t.Errorf("%d requests met a rule, %d files were lost: too little was tried", found, lost)
	}
}

func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

func randomRoutes(r *rand.Rand) []*httpRoute {
	var all []*httpRoute
	for i := range 1 + r.IntN(3) {
		one := &httpRoute{Metadata: metadata{Name: fmt.Sprint("r", i), Created: pick(r, "", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")}}
		for range r.IntN(3) {
			host := pick(r, "a.example.com", "b.a.example.com", "*.example.com", "*.a.example.com")
			if !slices.Contains(one.Spec.Hostnames, host) {
				one.Spec.Hostnames = append(one.Spec.Hostnames, host)
			}
		}
		for range 1 + r.IntN(3) {
			var made rule
			for range r.IntN(3) {
				m := match{Method: pick(r, "", "", "GET", "POST")}
				if r.IntN(4) > 0 {
					m.Path = &valueMatch{Type: pick(r, "Exact", "PathPrefix"), Value: pick(r, "/", "/a", "/a/", "/a/b", "/a/*", "/ab", "/a/b,c")}
				}
				if r.IntN(3) == 0 {
					m.Headers = []valueMatch{{Name: pick(r, "X-One", "x-one", "X-Two"), Value: pick(r, "1", "2")}}
				}
				made.Matches = append(made.Matches, m)
			}
			one.Spec.Rules = append(one.Spec.Rules, made)
		}
		all = append(all, one)
	}
	return all
}

func randomRequest(r *rand.Rand) request {
	headers := map[string]string{}
	for _, name := range []string{"x-one", "x-two"} {
		if r.IntN(2) == 0 {
			headers[name] = pick(r, "1", "2")
		}
	}
	return request{
		headers: headers,
		host:    pick(r, "a.example.com", "b.a.example.com", "c.example.com", "x.b.a.example.com", "example.org", "a.example.com:8080"),
		path:    pick(r, "/", "/a", "/a/", "/a/b", "/a/b/", "/a/b/c", "/ab", "/a/b,c", "/a/%2A", "/a/x"),
		method:  pick(r, "GET", "POST", "PUT"),
	}
}

// manifestOf writes routes as YAML. The upstream of a rule is named after its route and its index.
func manifestOf(routes []*httpRoute) string {
	var b strings.Builder
	for _, one := range routes {
		created := ""
		if one.Metadata.Created != "" {
			created = ", creationTimestamp: " + one.Metadata.Created
		}
		fmt.Fprintf(&b, "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: %s%s}\nspec:\n  hostnames: [%s]\n  rules:\n", one.Metadata.Name, created, quoted(one.Spec.Hostnames))
		for i := range one.Spec.Rules {
			fmt.Fprintf(&b, "  - backendRefs: [{name: %s-%d, port: 80}]\n    matches:\n", one.Metadata.Name, i)
			for _, m := range one.Spec.Rules[i].Matches {
				b.WriteString("    - {")
				if m.Path != nil {
					fmt.Fprintf(&b, "path: {type: %s, value: %q}, ", m.Path.Type, m.Path.Value)
				}
				if m.Method != "" {
					fmt.Fprintf(&b, "method: %s, ", m.Method)
				}
				for _, h := range m.Headers {
					fmt.Fprintf(&b, "headers: [{name: %s, value: %q}], ", h.Name, h.Value)
				}
				b.WriteString("}\n")
			}
		}
	}
	return b.String()
}

func quoted(list []string) string {
	var all []string
	for _, s := range list {
		all = append(all, fmt.Sprintf("%q", s))
	}
	return strings.Join(all, ", ")
}

// tableOf returns the proxy's lookup table for the routes; the values are Services.
func tableOf(t *testing.T, result *Result) *route.Table[string] {
	t.Helper()
	var rules []route.Rule[string]
	for _, name := range result.Routes {
		rule := route.Rule[string]{Name: name}
		prefix := configfile.Prefix + "ROUTE_" + configfile.RouteWord(name) + "_"
		for _, p := range result.Pairs {
			switch p.Name {
			case prefix + "HOST":
				rule.Host = p.Value
			case prefix + "PATH":
				rule.Path = p.Value
			case prefix + "METHODS":
				rule.Methods = strings.Split(p.Value, ",")
			case prefix + "HEADER":
				rule.Header = p.Value
			case prefix + "UPSTREAM":
				rule.Value, _, _ = strings.Cut(strings.TrimPrefix(p.Value, "http://"), ".")
			}
		}
		rules = append(rules, rule)
	}
	table, err := route.New(rules, "")
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// rank is how Gateway API ranks a match: the larger one wins, compared from the first element.
type rank [8]int

// chosen returns the Service of the rule that Gateway API selects for a request, or "".
func chosen(routes []*httpRoute, q *request) string {
	best, service := rank{-1}, ""
	for _, one := range inOrder(routes) {
		hosts := one.Spec.Hostnames
		if len(hosts) == 0 {
			hosts = []string{"*"}
		}
		for i := range one.Spec.Rules {
			matches := one.Spec.Rules[i].Matches
			if len(matches) == 0 {
				matches = []match{{}}
			}
			for _, host := range hosts {
				for _, m := range matches {
					if rank, met := rankOf(host, &m, q); met && slices.Compare(rank[:], best[:]) > 0 {
						best, service = rank, fmt.Sprintf("%s-%d", one.Metadata.Name, i)
					}
				}
			}
		}
	}
	return service
}

// rankOf ranks a match by the rules of the HTTPRoute reference: length of a host without wildcard,
// length of the host, exact path, length of the prefix, method, number of headers.
func rankOf(host string, m *match, q *request) (r rank, met bool) {
	name, _, _ := strings.Cut(q.host, ":")
	switch suffix, wild := strings.CutPrefix(host, "*"); {
	case !wild && host == name:
		r[0], r[1] = len(host), len(host)
	case wild && suffix == "":
	case wild && strings.HasSuffix(name, suffix):
		r[1] = len(host)
	default:
		return r, false
	}
	path := valueMatch{Value: "/"}
	if m.Path != nil {
		path = *m.Path
	}
	asked := strings.ReplaceAll(q.path, "%2A", "*")
	prefix := strings.TrimSuffix(path.Value, "/")
	switch {
	case path.Type == "Exact" && path.Value == asked:
		r[2] = 1
	case path.Type != "Exact" && (asked == prefix || strings.HasPrefix(asked, prefix+"/")):
		r[3] = len(prefix)
	default:
		return r, false
	}
	if m.Method != "" {
		r[4] = 1
	}
	for _, h := range m.Headers {
		if q.headers[strings.ToLower(h.Name)] != h.Value {
			return r, false
		}
		r[5]++
	}
	return r, m.Method == "" || m.Method == q.method
}

// A match without method and header, or with both, is torn from none: both APIs prefer the same one.
func TestOnlyAMethodAndAHeaderAreTorn(t *testing.T) {
	for _, other := range []string{"", "method: GET, headers: [{name: a, value: b}]"} {
		for _, first := range []string{"method: GET", "headers: [{name: a, value: b}]"} {
			rule := func(match string) string {
				return "\n  - {matches: [{" + match + "}], backendRefs: [{name: app, port: 80}]}"
			}
			made, err := Convert([]byte(routeOf(rule(first) + rule(other))))
			if err != nil || len(made.Lost) > 0 || len(made.Routes) != 2 {
				t.Errorf("%q after %q: %v, %v, %v", other, first, made.Routes, made.Lost, err)
			}
		}
	}
}
