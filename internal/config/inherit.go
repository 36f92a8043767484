package config

import (
	"slices"

	"github.com/retryproxy/retryproxy/internal/config/configfile"
)

// If a route has no value of its own, the first of these applies: the route's own profile,
// the global value, the global profile, the default.
//
// One group is not inherited: a route with its own upstream takes none of the global
// UPSTREAM_CA, _CERT and _KEY, no HEALTH_PATH and no REQUEST_HEADERS_FILE. They belong to the global
// upstream, whose secrets must not be sent to other upstreams. A route with its own UPSTREAM_CERT does
// not take the key of another one.

// ofUpstream lists the settings that belong to one upstream.
var ofUpstream = []string{"UPSTREAM_CA", "UPSTREAM_CERT", "UPSTREAM_KEY", "HEALTH_PATH", "REQUEST_HEADERS_FILE"}

func parseRoute(r *Route, name string, parent *Route, vars *sorted, problems *Problems) {
	upper := configfile.RouteWord(name)
	own := vars.routes[upper]
	r.Name, r.parent, r.own = name, parent, ownNames(own, routePrefix(name))
	matchers := variables{}
	for i := range matcherSettings {
		key := matcherSettings[i].Key
		if value, set := own[key]; set {
			matchers[key] = value
			delete(own, key)
		}
	}
	parseInto(&r.Matcher, matcherSettings, matchers, r.matcherVariable, problems)
	if len(own) == 0 { // saves the parsing for 10 000 routes
		r.Shared = parent.Shared
		return
	}
	inherit(r, own, vars.global)
	parseInto(&r.Shared, sharedSettings, own, r.Variable, problems)
}

// inherit adds the variables of the route's profile and the global ones to its own.
func inherit(r *Route, own, global variables) {
	if own["PROFILE"] != "" {
		fillProfile(own, r.own)
	}
	otherUpstream, otherCert := own["UPSTREAM"] != "", own["UPSTREAM_CERT"] != ""
	for i := range sharedSettings {
		key := sharedSettings[i].Key
		value, set := global[key]
		switch _, have := own[key]; {
		case have:
		case otherUpstream && slices.Contains(ofUpstream, key), otherCert && key == "UPSTREAM_KEY":
			r.own[key] = "" // the default, not the parent's value
		case set:
			own[key] = value
		}
	}
}

// fillProfile sets the profile's values for settings that vars does not contain. If own is
// not nil, it marks these keys there as set by no variable.
func fillProfile(vars variables, own map[string]string) {
	profile := vars["PROFILE"]
	for i := range sharedSettings {
		s := &sharedSettings[i]
		if _, set := vars[s.Key]; set || s.Profiles == nil {
			continue
		}
		value, changed := s.Profiles[profile]
		switch {
		case changed:
			vars[s.Key] = value
		case own != nil:
			vars[s.Key] = s.Default // a route's profile replaces the global one
		}
		if own != nil {
			own[s.Key] = ""
		}
	}
}
