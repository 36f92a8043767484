package config

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
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
	key := strings.ReplaceAll(strings.ToUpper(strings.TrimPrefix(name, Prefix)), "-", "_")
	route, rest, isRoute := meantRouteKey(key, routes)
	switch {
	case isRoute:
		return explainUnknownOfRoute(route, rest, routes)
	case key != strings.TrimPrefix(name, Prefix) && globalKeys()[key] != nil:
		return "unknown name; names are in upper case with underscores" + didYouMean(Prefix, key)
	case key == "HOST":
		return "can only be set for a route: " + Prefix + "ROUTES=NAME and " + Prefix + "ROUTE_<NAME>_HOST; the Host header that is sent upstream is set by " + Prefix + "UPSTREAM_HOST"
	case strings.HasPrefix(key, "ROUTES_"):
		return "unknown name" + didYouMean(Prefix, "ROUTE_"+strings.TrimPrefix(key, "ROUTES_"))
	case strings.HasPrefix(key, "ROUTE_") && hintFor(key) == "":
		return "unknown name" + didYouMean(Prefix, key+"_PATH")
	case routeKeys()[key] != nil:
		return "can only be set for a route: " + Prefix + "ROUTES=NAME and " + Prefix + "ROUTE_<NAME>_" + key
	case hintFor(key) != "":
		return "unknown name; " + hintFor(key)
	}
	return "unknown name" + didYouMean(Prefix, nearestKey(key, globalKeys()))
}

func explainUnknownOfRoute(route, key string, routes RouteNames) string {
	switch {
	case !hasRoute(routes, route):
		return unknownRoute(route, key, routes)
	case routeKeys()[key] != nil:
		return "unknown name; names are in upper case with underscores" + didYouMean(Prefix+"ROUTE_"+route+"_", key)
	case globalKeys()[key] != nil:
		return "cannot be set for one route, only for all: " + Prefix + key
	case hintFor(key) != "":
		return "unknown name; " + ofRoute(route, hintFor(key))
	}
	return "unknown name" + didYouMean(Prefix+"ROUTE_"+route+"_", nearestKey(key, routeKeys()))
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
	var words []string
	for _, name := range routes {
		words = append(words, configfile.RouteWord(name))
	}
	if meant := Nearest(route, slices.Values(words)); meant != "" {
		return fmt.Sprintf("%sROUTES does not name a route %q; did you mean %sROUTE_%s_%s?", Prefix, strings.ReplaceAll(strings.ToLower(route), "_", "-"), Prefix, meant, rest)
	}
	name := strings.ReplaceAll(strings.ToLower(route), "_", "-")
	return fmt.Sprintf("%sROUTES does not name a route %q; did you mean %[1]sROUTES=%s?", Prefix, name, strings.Join(append(slices.Clone(routes), name), ","))
}

func hasRoute(routes RouteNames, upper string) bool {
	for _, name := range routes {
		if configfile.RouteWord(name) == upper {
			return true
		}
	}
	return false
}

// AsVariable returns the assignment that sets the setting of that name, which may be misspelled or that of
// another program, or a hint about it; both "" if nothing is near. The value may be "".
func AsVariable(key, value string) (assignment, hint string) {
	meant := nearestKey(key, globalKeys())
	if hint := hintFor(key); hint != "" && globalKeys()[key] == nil {
		named := settingInHint.FindAllString(hint, -1)
		if len(named) != 1 || !strings.HasPrefix(hint, "did you mean ") || value == "" {
			return "", hint
		}
		meant = strings.TrimPrefix(named[0], Prefix)
	}
	if meant == "" {
		return "", ""
	}
	s := globalKeys()[meant]
	if fixed := Suggest(meant, value); fixed != "" {
		value = fixed
	}
	if value == "" {
		value = cmp.Or(s.Example, s.Default, "...")
	}
	return Prefix + meant + "=" + value, ""
}

// Suggest returns a value of the setting, or the valid one that may have been meant by it; "" if nothing
// is near.
func Suggest(key, value string) string {
	s := globalKeys()[key]
	if s.allows(value) {
		return value
	}
	fixed, _ := s.meant(value)
	return fixed
}

// SuggestAddressFlag returns the question for the flag --address of a command that was given arg instead, the address,
// port or URL of an admin listener; "" for another argument.
func SuggestAddressFlag(arg string) string {
	if !strings.ContainsAny(arg, ":/.0123456789") {
		return ""
	}
	if address := Suggest("ADMIN_LISTEN", arg); address != "" {
		return "did you mean --address " + address + "?"
	}
	return ""
}

// nearestKey returns the name that may have been meant by key: the nearest one, or else the longest one
// of which key has all words, such as TLS_CERT for TLS_CERT_FILE.
func nearestKey(key string, keys map[string]*Setting) string {
	if near := Nearest(key, maps.Keys(keys)); near != "" {
		return near
	}
	best, words := "", strings.Split(key, "_")
	for _, each := range slices.Sorted(maps.Keys(keys)) {
		missing := func(word string) bool { return !slices.Contains(words, word) }
		if parts := strings.Split(each, "_"); parts[0] == words[0] && !slices.ContainsFunc(parts, missing) && len(each) > len(best) {
			best = each
		}
	}
	return best
}

func didYouMean(prefix, key string) string {
	if key == "" {
		return ""
	}
	return "; did you mean " + prefix + key + "?"
}

// Nearest returns the one of names that may have been meant by name: the one with the smallest
// distance. It returns "" if even that is more than a third of the letters (for short names, more than
// one edit). Of several it takes the alphabetically first, so that the result is stable.
func Nearest(name string, names iter.Seq[string]) string {
	best, bestDistance := "", max(len(name)/3, 1)+1
	for each := range names {
		d := distance(name, each, bestDistance)
		if d < bestDistance || d == bestDistance && best != "" && each < best {
			best, bestDistance = each, d
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

// serviceLink matches the variables, with their values, that Kubernetes sets in every pod for each
// Service of its namespace, unless enableServiceLinks is false. They begin with the Service's name.
// So a Service called retryproxy, or retryproxy-<x>, produces names that begin like ours:
//
//	RETRYPROXY_SERVICE_HOST=10.0.0.1
//	RETRYPROXY_SERVICE_PORT=80             RETRYPROXY_SERVICE_PORT_<PORT NAME>=80
//	RETRYPROXY_PORT=tcp://10.0.0.1:80      RETRYPROXY_PORT_80_TCP=tcp://10.0.0.1:80
//	RETRYPROXY_PORT_80_TCP_PROTO=tcp       RETRYPROXY_PORT_80_TCP_PORT=80
//	RETRYPROXY_PORT_80_TCP_ADDR=10.0.0.1
//
// It matches the values too, so that a misspelled setting is not mistaken for one of them. Its groups
// are an address, a port, and an address with its port. It is compiled when it is first needed, for an
// unknown name, which most processes do not have.
var serviceLink = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^RETRYPROXY_(?:\w+_)?(?:` +
		`(?:SERVICE_HOST|PORT_\d+_(?:TCP|UDP|SCTP)_ADDR)=(.+)|` +
		`(?:SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)_PORT)=(.+)|` +
		`PORT_\d+_(?:TCP|UDP|SCTP)_PROTO=(?:tcp|udp|sctp)|` +
		`PORT(?:_\d+_(?:TCP|UDP|SCTP))?=(?:tcp|udp|sctp)://(.+))$`)
})

// isServiceLink reports whether Kubernetes, not a user, set the variable.
func isServiceLink(name, value string) bool {
	match := serviceLink().FindStringSubmatch(name + "=" + value)
	if match == nil {
		return false
	}
	switch address, port, both := match[1], match[2], match[3]; {
	case address != "":
		_, err := netip.ParseAddr(address)
		return err == nil
	case port != "":
		n, err := strconv.ParseUint(port, 10, 16)
		return err == nil && n > 0
	case both != "":
		a, err := netip.ParseAddrPort(both)
		return err == nil && a.Port() > 0
	}
	return true // a protocol
}
