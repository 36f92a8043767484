package settings

import (
	"fmt"
	"strings"
	"sync"
)

// globalKeys are the names that may follow RETRYPROXY_.
var globalKeys = sync.OnceValue(func() map[string]*Setting {
	keys := map[string]*Setting{}
	for _, list := range [][]Setting{globalSettings, sharedSettings} {
		for i := range list {
			keys[list[i].Key] = &list[i]
		}
	}
	return keys
})

// routeKeys are the names that may follow RETRYPROXY_ROUTE_<NAME>_.
var routeKeys = sync.OnceValue(func() map[string]*Setting {
	keys := map[string]*Setting{}
	for _, list := range [][]Setting{sharedSettings, matcherSettings} {
		for i := range list {
			keys[list[i].RouteKey] = &list[i]
		}
	}
	return keys
})

// explainUnknown says what is wrong with a name that means nothing, and what
// may have been meant.
func explainUnknown(name string, routes RouteNames) string {
	key := strings.TrimPrefix(name, Prefix)
	route, rest, isRoute := splitRouteKey(key)
	switch {
	case !isRoute && routeKeys()[key] != nil:
		return "can only be set for a route: " + Prefix + "ROUTE_<NAME>_" + key
	case !isRoute:
		return "unknown name" + didYouMean(Prefix, nearest(key, globalKeys()))
	case !hasRoute(routes, route):
		return unknownRoute(route, rest, routes)
	case globalKeys()[rest] != nil:
		return "cannot be set for one route, only for all: " + Prefix + rest
	}
	return "unknown name" + didYouMean(Prefix+"ROUTE_"+route+"_", nearest(rest, routeKeys()))
}

func unknownRoute(route, rest string, routes RouteNames) string {
	names := map[string]*Setting{}
	for _, name := range routes {
		names[strings.ToUpper(name)] = nil
	}
	if meant := nearest(route, names); meant != "" {
		return fmt.Sprintf("%sROUTES does not name a route %q; did you mean %sROUTE_%s_%s?", Prefix, route, Prefix, meant, rest)
	}
	return fmt.Sprintf("%sROUTES does not name a route %q", Prefix, strings.ToLower(route))
}

func hasRoute(routes RouteNames, upper string) bool {
	for _, name := range routes {
		if strings.ToUpper(name) == upper {
			return true
		}
	}
	return false
}

func didYouMean(prefix, key string) string {
	if key == "" {
		return ""
	}
	return "; did you mean " + prefix + key + "?"
}

// nearest is the key with the fewest edits to get to it, "" when even that
// takes more than a third of the letters. Of equally near ones the
// alphabetically first is taken, so that the answer does not vary.
func nearest(name string, keys map[string]*Setting) string {
	best, bestDistance := "", len(name)/3+2
	for key := range keys {
		d := distance(name, key, bestDistance)
		if d < bestDistance || d == bestDistance && best != "" && key < best {
			best, bestDistance = key, d
		}
	}
	return best
}

// distance is the number of insertions, deletions, replacements and swaps of
// neighbours that lead from a to b (optimal string alignment), or some number
// above limit when it is above limit.
func distance(a, b string, limit int) int {
	if diff := len(a) - len(b); diff > limit || -diff > limit {
		return limit + 1
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
