package route

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestAStarWithinAPathIsOneSegment(t *testing.T) {
	table := build(t,
		rule("orders", Match{Path: "/users/*/orders"}),
		rule("below orders", Match{Path: "/users/*/orders/*"}),
		rule("me", Match{Path: "/users/me/*"}),
		rule("post", Match{Path: "/users/me/orders", Methods: []string{"POST"}}),
		rule("first", Match{Path: "/*/health"}),
		rule("two", Match{Path: "/a/*/*/b"}),
		rule("literal", Match{Path: "/users/%2A/orders/x"}),
	)
	for path, want := range map[string]string{
		"/users/7/orders": "orders", "/users/%2a/orders": "orders", "/users/caf%C3%A9/orders": "orders", "/users/" + strings.Repeat("x", 1000) + "/orders": "orders",
		"/users/7/orders/": "below orders", "/users/7/orders/9/items": "below orders", "/users/*/orders/x": "literal",
		"/users/me/orders": "me", "/users/me": "me", "/users/me/x/y": "me",
		"/users//orders": "default", "/users/orders": "default", "/users/7": "default", "/users/7/8/orders": "default", "/users/7/orderss": "default",
		"/users/health": "first", "/x/health": "first", "/health": "default", "//health": "default", "/x/health/": "default",
		"/a/1/2/b": "two", "/a/1/b": "default", "*": "default",
	} {
		if got := table.Find("", nil, []byte(path), []byte("GET"), nil); got != want {
			t.Errorf("%.60s: %s, want %s", path, got, want)
		}
	}
	if got := table.Find("", nil, []byte("/users/me/orders"), []byte("POST"), nil); got != "post" {
		t.Errorf("a rule with methods: %s", got)
	}
	for path, want := range map[string]bool{
		"/users/a%2Fb/orders": true, "/users/a;b/orders": true, "/users/a/../b/orders": true, "/users/%6De/orders": false, "/users/a%5Cb/orders": true, "/users/7/orders": false,
		"/users/me%3Fx/orders": true, "/users/me%23/orders": true, "/users/me%00/orders": true, "/users/me%253Fx/orders": true, "/users/7/orders/who%3F": false,
	} {
		if got := table.Ambiguous("", nil, []byte(path), []byte("GET"), nil, ""); got != want {
			t.Errorf("%s: ambiguous %v, want %v", path, got, want)
		}
	}
	if _, err := New([]Rule[int]{{Match: Match{Path: "/a/*/b"}, Name: "x"}, {Match: Match{Path: "/a/*/b"}, Name: "y"}}, 0); err == nil || !strings.Contains(err.Error(), "matches the same requests") {
		t.Errorf("two equal rules: %v", err)
	}
}

// rankOf ranks a pattern for a path by the documented rules, found the slow way: a digit for each segment
// (2 for a name, 1 for "*", 0 for the end of a prefix). ok reports whether it matches.
func rankOf(pattern, path string) (rank string, ok bool) {
	want, prefix := strings.CutSuffix(pattern, "/*")
	names, segments := strings.Split(want, "/")[1:], strings.Split(path, "/")[1:]
	if want == "" {
		names = nil
	}
	for i, name := range names {
		switch {
		case i >= len(segments):
			return "", false
		case name == segments[i]:
			rank += "2"
		case name == "*" && segments[i] != "":
			rank += "1"
		default:
			return "", false
		}
	}
	if prefix {
		return rank + "0", true
	}
	return rank + "3", len(names) == len(segments)
}

// Whatever the rules are, the one found is the most specific of all that match.
func TestTheMostSpecificPathIsFound(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	word := func(from ...string) string { return from[random.IntN(len(from))] }
	for range 3000 {
		var rules []Rule[string]
		seen := map[string]bool{}
		for range 1 + random.IntN(12) {
			path := ""
			for range random.IntN(4) {
				path += "/" + word("a", "b", "*")
			}
			path += word("/*", "/a", "/b")
			if !seen[path] {
				seen[path] = true
				rules = append(rules, rule(path, Match{Path: path}))
			}
		}
		table := build(t, rules...)
		for range 20 {
			path := ""
			for range 1 + random.IntN(5) {
				path += "/" + word("a", "b", "c", "a", "b", "")
			}
			want, best := "default", ""
			for _, r := range rules {
				if rank, ok := rankOf(r.Match.Path, path); ok && rank > best {
					want, best = r.Name, rank
				}
			}
			if got := table.Find("", nil, []byte(path), nil, nil); got != want {
				t.Fatalf("%s: %s, want %s of %v", path, got, want, fmt.Sprint(rules))
			}
		}
	}
}
