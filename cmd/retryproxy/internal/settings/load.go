package settings

import (
	"sort"
	"strings"
)

// Load reads every RETRYPROXY_* variable of environ (in the form of
// os.Environ) and of the file that RETRYPROXY_ENV_FILE names.
//
// The Settings are never nil and hold a default wherever a value was not
// usable, so that a client may go on to look for further problems; they may
// be put to use only when Problems.Err is nil. The only outside thing Load
// touches is that file.
func Load(environ []string) (*Settings, Problems) {
	var problems Problems
	vars := collect(environ, &problems)
	addFile(vars, &problems)
	names := sortVariables(vars, &problems)
	s := parse(names, &problems)
	derive(s, &problems)
	s.check(&problems)
	return s, problems
}

// variables are the values of RETRYPROXY_* by name. Set but empty ones are
// left out: manifests write them for "not set".
type variables map[string]string

func collect(environ []string, problems *Problems) variables {
	vars := variables{}
	for _, entry := range environ {
		name, value, found := strings.Cut(entry, "=")
		switch {
		case !found:
		case strings.HasPrefix(name, Prefix):
			vars.set(name, value)
		case isAlmostOurs(name):
			problems.warnf(name, value, "is ignored; our names begin with %s", Prefix)
		}
	}
	return vars
}

// isAlmostOurs finds names meant for us that no search for misspelt settings
// would see.
func isAlmostOurs(name string) bool {
	upper := strings.ToUpper(name)
	return strings.HasPrefix(upper, Prefix) || strings.HasPrefix(upper, "RETRY_PROXY_")
}

func (v variables) set(name, value string) {
	if value = strings.TrimSpace(value); value != "" {
		v[name] = value
	}
}

// addFile adds the variables of the file. A name in both places is an error:
// so nobody has to know which of them wins.
func addFile(vars variables, problems *Problems) {
	const variable = Prefix + "ENV_FILE"
	path := vars[variable]
	if path == "" {
		return
	}
	pairs, err := readEnvFile(path)
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			problems.errorf(variable, path, "%s", line)
		}
	}
	fromFile := variables{}
	for _, p := range pairs {
		switch _, both := vars[p.name]; {
		case p.name == variable:
			problems.errorf(variable, path, "line %d: the file cannot name another file", p.line)
		case both:
			problems.errorf(p.name, vars[p.name], "is set in the environment and in line %d of %s; take one of them away", p.line, path)
		case !strings.HasPrefix(p.name, Prefix):
			problems.warnf(variable, path, "line %d: %s is not a name of ours and is ignored", p.line, p.name)
		default:
			fromFile.set(p.name, p.value)
		}
	}
	for name, value := range fromFile {
		vars[name] = value
	}
}

// sorted holds the variables by where they belong. Keys are without prefix.
type sorted struct {
	global variables            // Global and Shared
	routes map[string]variables // by upper-case route name
	list   RouteNames
}

// sortVariables finds out what each name means, and reports those that mean
// nothing.
func sortVariables(vars variables, problems *Problems) *sorted {
	out := &sorted{global: variables{}, routes: map[string]variables{}}
	wrongList := out.list.UnmarshalText([]byte(vars[Prefix+"ROUTES"])) // reported when Global is parsed
	for _, name := range out.list {
		out.routes[strings.ToUpper(name)] = variables{}
	}
	strict := vars[Prefix+"STRICT"] == "" || isTrue(vars[Prefix+"STRICT"])
	names := make([]string, 0, len(vars))
	for name := range vars {
		names = append(names, name)
	}
	sort.Strings(names) // so that messages come in the same order each time
	for _, name := range names {
		if out.take(name, vars[name]) || isServiceLink(name, vars[name]) {
			continue
		}
		if wrongList != nil && isRouteVariable(name) {
			continue // it may be of a route that the list names wrongly
		}
		problems.add(Problem{Variable: name, Value: vars[name], Message: explainUnknown(name, out.list), Warning: !strict})
	}
	return out
}

// take files a variable with a known name.
func (s *sorted) take(name, value string) bool {
	key := strings.TrimPrefix(name, Prefix)
	if _, known := globalKeys()[key]; known {
		s.global[key] = value
		return true
	}
	route, key, ok := splitRouteKey(key)
	if !ok || s.routes[route] == nil {
		return false
	}
	if _, known := routeKeys()[key]; !known {
		return false
	}
	s.routes[route][key] = value
	return true
}

func isRouteVariable(name string) bool { return strings.HasPrefix(name, Prefix+"ROUTE_") }

// splitRouteKey splits ROUTE_<NAME>_<KEY>; names hold no underscore.
func splitRouteKey(key string) (route, rest string, ok bool) {
	key, ok = strings.CutPrefix(key, "ROUTE_")
	if !ok {
		return "", "", false
	}
	return strings.Cut(key, "_")
}
