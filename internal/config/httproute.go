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
func (in *input) addHTTPRouteFile() {
	const variable = Prefix + "HTTPROUTE_FILE"
	path := in.vars[variable]
	if path == "" {
		return
	}
	content, err := configfile.Text(path)
	if err != nil {
		in.problems.errorf(variable, path, "%s", err)
		return
	}
	routes, err := gatewayapi.Convert(content)
	for _, each := range joined(err) {
		in.problems.errorf(variable, path, "%v", each)
	}
	for _, lost := range routes.Lost {
		in.problems.errorf(variable, path, "%v", lost)
	}
	in.addHTTPRoutes(&routes, path)
}

// addHTTPRoutes adds the variables of routes.
func (in *input) addHTTPRoutes(routes *gatewayapi.Result, path string) {
	for _, p := range routes.Pairs {
		if value, both := in.vars[p.Name]; both {
			in.problems.errorf(p.Name, value, "is set in %s too; remove one of them", placeOf(path, p.Line))
			continue
		}
		in.add(p, path)
	}
	const names = Prefix + "ROUTES"
	in.vars.set(names, strings.Trim(in.vars[names]+","+strings.Join(routes.Routes, ","), ","))
	const upstream = Prefix + "UPSTREAM"
	if in.vars[upstream] == "" && routes.CatchAll != "" { // it gets no requests
		in.vars[upstream] = routes.CatchAll
	}
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
	in := &input{vars: variables{}}
	routes, err := gatewayapi.Convert(content)
	for _, each := range joined(err) {
		in.problems.errorf(name, "", "%v", each)
	}
	in.addHTTPRoutes(&routes, name)
	made := HTTPRoutes{Lost: routes.Lost, NeedsUpstream: in.vars[Prefix+"UPSTREAM"] == ""}
	made.YAML, _ = (&input{vars: maps.Clone(in.vars), from: in.from}).yaml()
	if made.NeedsUpstream { // set elsewhere
		in.vars[Prefix+"UPSTREAM"] = "http://localhost:3000"
	}
	if err == nil {
		in.settings()
	}
	return made, in.problems
}
