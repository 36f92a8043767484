package settings

import "strings"

// Where a route has no value of its own, the nearest one counts, in this
// order: what the route sets, the route's own profile, what is set globally,
// the global profile, the default.
//
// One group is not inherited: a route that names its own upstream takes none
// of the global UPSTREAM_CA, _CERT, _KEY and _SERVER_NAME, and no PROBE_PATH.
// They belong to the global upstream; a client certificate is not for showing
// around.

var upstreamKeys = []string{"UPSTREAM_CA", "UPSTREAM_CERT", "UPSTREAM_KEY", "UPSTREAM_SERVER_NAME"}

// ofUpstream are all settings that belong to the upstream they were made for.
var ofUpstream = append([]string{"PROBE_PATH"}, upstreamKeys...)

func parseRoute(r *Route, name string, parent *Route, vars *sorted, problems *Problems) {
	upper := strings.ToUpper(name)
	own := vars.routes[upper]
	prefix := Prefix + "ROUTE_" + upper + "_"
	r.Name, r.parent = name, parent
	r.own = make(map[string]string, len(own))
	matchers := variables{}
	for i := range matcherSettings {
		key := matcherSettings[i].Key
		if value, set := own[key]; set {
			matchers[key], r.own[key] = value, prefix+key
			delete(own, key)
		}
	}
	parseInto(&r.Matcher, matcherSettings, matchers, r.matcherVariable, problems)
	if len(own) == 0 { // nothing of its own: spares 10 000 routes the parsing
		r.Shared = parent.Shared
		return
	}
	for i := range sharedSettings {
		s := &sharedSettings[i]
		if _, set := own[s.Key]; set {
			r.own[s.Key] = prefix + s.Key
		}
	}
	inherit(r, own, vars.global)
	parseInto(&r.Shared, sharedSettings, own, r.Variable, problems)
}

// inherit adds to the route's own variables those of its profile and the
// global ones.
func inherit(r *Route, own, global variables) {
	if own["PROFILE"] != "" {
		fillProfile(own, r.own)
	}
	cut := map[string]bool{}
	if own["UPSTREAM"] != "" {
		for _, key := range ofUpstream {
			cut[key] = true
		}
	}
	for i := range sharedSettings {
		key := sharedSettings[i].Key
		_, have := own[key]
		value, set := global[key]
		switch {
		case have:
		case cut[key]:
			r.own[key] = "" // the default, whatever the parent says
		case set:
			own[key] = value
		}
	}
}

// fillProfile sets what the profile in vars rules and vars leave open. The
// keys so filled are marked in own (if not nil) as set by nobody.
func fillProfile(vars variables, own map[string]string) {
	batch := vars["PROFILE"] == "batch"
	if !batch && own == nil {
		return // the defaults are those of the interactive profile
	}
	for i := range sharedSettings {
		s := &sharedSettings[i]
		if _, set := vars[s.Key]; set || s.Batch == "" {
			continue
		}
		vars[s.Key] = s.Default
		if batch {
			vars[s.Key] = s.Batch
		}
		if own != nil {
			own[s.Key] = ""
		}
	}
}
