package config

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/retryproxy/retryproxy/internal/config/configfile"
)

// globalKeys returns the names that may follow RETRYPROXY_.
var globalKeys = sync.OnceValue(func() map[string]*Setting {
	keys := map[string]*Setting{}
	for _, list := range [][]Setting{globalSettings, sharedSettings} {
		for i := range list {
			keys[list[i].Key] = &list[i]
		}
	}
	return keys
})

// routeKeys returns the names that may follow RETRYPROXY_ROUTE_<NAME>_.
var routeKeys = sync.OnceValue(func() map[string]*Setting {
	keys := map[string]*Setting{}
	for _, list := range [][]Setting{sharedSettings, matcherSettings} {
		for i := range list {
			keys[list[i].Key] = &list[i]
		}
	}
	return keys
})

// explainUnknown returns what is wrong with an unknown name, and which one may have been
// meant.
func explainUnknown(name string, routes RouteNames) string {
	key := strings.TrimPrefix(name, Prefix)
	route, rest, isRoute := meantRouteKey(key, routes)
	switch {
	case key == "HOST":
		return "can only be set for a route: " + Prefix + "ROUTE_<NAME>_HOST; the Host header sent upstream is " + Prefix + "UPSTREAM_HOST"
	case !isRoute && routeKeys()[key] != nil:
		return "can only be set for a route: " + Prefix + "ROUTE_<NAME>_" + key
	case !isRoute && hints[key] != "":
		return "unknown name; " + hints[key]
	case !isRoute && constants[key] != "":
		return "is no setting; " + constants[key]
	case isRoute && hasRoute(routes, route) && hints[rest] != "":
		return "unknown name; " + ofRoute(route, hints[rest])
	case isRoute && constants[rest] != "":
		return "is no setting; " + ofRoute(route, constants[rest])
	case !isRoute:
		return "unknown name" + didYouMean(Prefix, nearest(key, globalKeys()))
	case !hasRoute(routes, route):
		return unknownRoute(route, rest, routes)
	case globalKeys()[rest] != nil:
		return "cannot be set for one route, only for all: " + Prefix + rest
	}
	return "unknown name" + didYouMean(Prefix+"ROUTE_"+route+"_", nearest(rest, routeKeys()))
}

// settingInHint matches the name of a setting in a hint.
var settingInHint = regexp.MustCompile(Prefix + `[A-Z_]+`)

// ofRoute replaces the settings in a hint by those of the route, if a route can have them.
func ofRoute(route, hint string) string {
	return settingInHint.ReplaceAllStringFunc(hint, func(name string) string {
		key := strings.TrimPrefix(name, Prefix)
		if routeKeys()[key] == nil {
			return name
		}
		return Prefix + "ROUTE_" + route + "_" + key
	})
}

// meantRouteKey splits ROUTE_<NAME>_<KEY> if no split is valid: after the longest name in routes,
// or else before the longest known key, or else at the first underscore.
func meantRouteKey(key string, routes RouteNames) (route, rest string, ok bool) {
	splits := splitRouteKey(key)
	if len(splits) == 0 {
		return "", "", false
	}
	meant := splits[0]
	for i := len(splits) - 1; i >= 0; i-- {
		if routeKeys()[splits[i].key] != nil {
			meant = splits[i]
		}
	}
	for _, each := range splits {
		if hasRoute(routes, each.word) {
			meant = each
		}
	}
	return meant.word, meant.key, true
}

func unknownRoute(route, rest string, routes RouteNames) string {
	names := map[string]*Setting{}
	for _, name := range routes {
		names[configfile.RouteWord(name)] = nil
	}
	if meant := nearest(route, names); meant != "" {
		return fmt.Sprintf("%sROUTES does not name a route %q; did you mean %sROUTE_%s_%s?", Prefix, strings.ReplaceAll(strings.ToLower(route), "_", "-"), Prefix, meant, rest)
	}
	return fmt.Sprintf("%sROUTES does not name a route %q", Prefix, strings.ReplaceAll(strings.ToLower(route), "_", "-"))
}

func hasRoute(routes RouteNames, upper string) bool {
	for _, name := range routes {
		if configfile.RouteWord(name) == upper {
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

// nearest returns the key with the smallest distance to name. It returns "" if even that is
// more than a third of the letters (for short names, more than one edit). Of several it
// takes the alphabetically first, so that the result is stable.
func nearest(name string, keys map[string]*Setting) string {
	best, bestDistance := "", max(len(name)/3, 1)+1
	for key := range keys {
		d := distance(name, key, bestDistance)
		if d < bestDistance || d == bestDistance && best != "" && key < best {
			best, bestDistance = key, d
		}
	}
	return best
}

// distance returns the number of insertions, deletions, replacements and swaps of
// neighbours that lead from a to b (optimal string alignment). If that is above limit, it
// returns some number above limit.
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

// Nearest returns the one of names that may have been meant by name, or "" if none is near.
func Nearest(name string, names []string) string {
	keys := map[string]*Setting{}
	for _, each := range names {
		keys[each] = nil
	}
	return nearest(name, keys)
}
