package config

import (
	"maps"
	"strings"

	"github.com/retryproxy/retryproxy/internal/config/configfile"
	"github.com/retryproxy/retryproxy/internal/gatewayapi"
)

// addHTTPRouteFile adds the settings for the HTTPRoutes of RETRYPROXY_HTTPROUTE_FILE. Their routes
// follow those of ROUTES. A name that is also set elsewhere is an error, as for CONFIG_FILE, and so
// is everything without an equivalent.
func addHTTPRouteFile(vars variables, from origins, problems *Problems) origins {
	const variable = Prefix + "HTTPROUTE_FILE"
	path := vars[variable]
	if path == "" {
		return from
	}
	content, err := configfile.Text(path)
	if err != nil {
		problems.errorf(variable, path, "%s", err)
		return from
	}
	routes, err := gatewayapi.Convert(content)
	tellLines(err, problems, variable, path)
	for _, lost := range routes.Lost {
		problems.errorf(variable, path, "%v", lost)
	}
	return vars.addHTTPRoutes(&routes, path, from, problems)
}

func tellLines(err error, problems *Problems, variable, path string) {
	if err == nil {
		return
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		problems.errorf(variable, path, "%s", line)
	}
}

// addHTTPRoutes adds the variables of routes, and their positions.
func (v variables) addHTTPRoutes(routes *gatewayapi.Result, path string, from origins, problems *Problems) origins {
	from.files = maps.Clone(from.files)
	if from.files == nil {
		from.files = map[string]origin{}
	}
	for _, p := range routes.Pairs {
		if value, both := v[p.Name]; both {
			problems.errorf(p.Name, value, "is set in %s too; remove one of them", placeOf(path, p.Line))
			continue
		}
		v.set(p.Name, p.Value)
		from.add(p, path)
	}
	const names = Prefix + "ROUTES"
	v.set(names, strings.Trim(v[names]+","+strings.Join(routes.Routes, ","), ","))
	const upstream = Prefix + "UPSTREAM"
	if v[upstream] == "" && routes.CatchAll != "" { // it gets no requests
		v[upstream] = routes.CatchAll
	}
	return from
}

// HTTPRoutes is the content of HTTPRoutes of Gateway API as settings.
type HTTPRoutes struct {
	YAML []byte // configuration file
	Lost []LostHTTPRoute
	// NeedsUpstream means that some requests match no rule. The settings lack the upstream for
	// them.
	NeedsUpstream bool
}

// LostHTTPRoute is something without an equivalent. The YAML lacks what depends on it.
type LostHTTPRoute = gatewayapi.Lost

// ConvertHTTPRoutes converts Kubernetes objects to a configuration file. Problems are errors of the
// objects or of the settings. name is the file's name for messages.
func ConvertHTTPRoutes(content []byte, name string) (HTTPRoutes, Problems) {
	var problems Problems
	routes, err := gatewayapi.Convert(content)
	tellLines(err, &problems, name, "")
	vars := variables{}
	from := vars.addHTTPRoutes(&routes, name, origins{}, &problems)
	made := HTTPRoutes{Lost: routes.Lost, NeedsUpstream: vars[Prefix+"UPSTREAM"] == ""}
	if err == nil {
		all := maps.Clone(vars)
		if made.NeedsUpstream { // set elsewhere
			all[Prefix+"UPSTREAM"] = "http://localhost:3000"
		}
		_, problems = all.settings(from, problems)
	}
	made.YAML, _ = vars.yaml(from, nil)
	return made, problems
}
