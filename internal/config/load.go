package config

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/retryproxy/retryproxy/internal/config/configfile"
)

// Load reads every RETRYPROXY_* variable of environ (in the form of os.Environ) and of the file named
// by RETRYPROXY_CONFIG_FILE.
//
// The Settings are never nil. They contain the default for every invalid value, so that a caller
// may look for further problems. They may only be used if Problems.Err is nil. Load reads no other
// file.
func Load(environ []string) (*Settings, Problems) {
	in := read(environ)
	return in.settings(), in.problems
}

// Defaults returns the default route of a process in front of an application that sets nothing but
// its upstream and the profile.
func Defaults(profile string) *Route {
	s, problems := Load([]string{Prefix + "UPSTREAM=http://localhost:3000", Prefix + "PROFILE=" + profile})
	if err := problems.Err(); err != nil {
		panic("settings: " + err.Error()) // there is no such profile
	}
	return &s.Default
}

// Getenv returns os.Getenv of environ, which is in the form of os.Environ.
func Getenv(environ []string) func(name string) string {
	return func(name string) string {
		for _, entry := range environ {
			if n, value, _ := strings.Cut(entry, "="); n == name {
				return value
			}
		}
		return ""
	}
}

// input is what the environment and files set, and the problems found so far.
type input struct {
	vars     variables
	from     origins
	problems Problems
}

func read(environ []string) *input {
	in := &input{vars: variables{}}
	in.addEnvironment(environ)
	in.addFile()
	return in
}

// settings returns the settings of all variables, and adds their problems.
func (in *input) settings() *Settings {
	s := parse(sortVariables(in.vars, &in.problems), &in.problems)
	s.from = in.from
	derive(s)
	s.check(&in.problems)
	s.Locate(in.problems)
	return s
}

// variables maps RETRYPROXY_* names to values. It omits empty values: manifests use them
// for "not set".
type variables map[string]string

func (in *input) addEnvironment(environ []string) {
	for _, entry := range environ {
		name, value, found := strings.Cut(entry, "=")
		switch {
		case !found:
		case strings.HasPrefix(name, Prefix):
			in.vars.set(name, value)
		case name == "UPSTREAM":
			in.from.unprefixed = true
		case isAlmostOurs(name):
			in.problems.warnf(name, value, "is ignored; names of settings begin with %s", Prefix)
		}
	}
}

// isAlmostOurs reports whether a name resembles ours but lacks the prefix, so that
// explainUnknown would not see it.
func isAlmostOurs(name string) bool {
	upper := strings.ToUpper(name)
	return strings.HasPrefix(upper, Prefix) || strings.HasPrefix(upper, "RETRY_PROXY_")
}

func (v variables) set(name, value string) {
	if value = strings.TrimSpace(value); value != "" {
		v[name] = value
	}
}

// addFile adds the variables of the file. A name in both places is an error, so that no
// precedence is needed.
func (in *input) addFile() {
	const variable = Prefix + "CONFIG_FILE"
	path := in.vars[variable]
	if path == "" {
		return
	}
	environ := maps.Clone(in.vars)
	if configfile.IsYAML(path) {
		in.from.yamlFile, in.from.environ = path, environ
	}
	pairs, err := configfile.Read(path)
	in.from.unread = err != nil && len(pairs) == 0
	for _, each := range joined(err) {
		var at *configfile.LineError
		if errors.As(each, &at) {
			in.problems.add(Problem{Variable: variable, Place: placeOf(path, at.Line), Message: at.Err.Error()})
		} else {
			in.problems.errorf(variable, path, "%v", each)
		}
	}
	for _, p := range pairs {
		switch _, both := environ[p.Name]; {
		case p.Name == variable:
			in.problems.add(Problem{Variable: variable, Place: placeOf(path, p.Line), Key: p.Key, Message: "the file cannot name another file"})
		case both:
			in.problems.errorf(p.Name, environ[p.Name], "is set in the environment and in %s; remove one of them", placeOf(path, p.Line))
		case !strings.HasPrefix(p.Name, Prefix):
			message := "is not the name of a setting and is ignored"
			if key := strings.ToUpper(p.Name); globalKeys()[key] != nil {
				message += didYouMean(Prefix, key)
			}
			in.problems.add(Problem{Variable: variable, Place: placeOf(path, p.Line), Key: p.Key, Message: message, Warning: true})
		default:
			in.add(p, path)
		}
	}
}

// add adds a variable that the file at path sets.
func (in *input) add(p configfile.Pair, path string) {
	in.vars.set(p.Name, p.Value)
	in.from.add(p, path)
}

// sorted holds the variables by scope. Keys are without prefix.
type sorted struct {
	global variables            // Global and Shared
	routes map[string]variables // by upper-case route name
	list   RouteNames
	wrong  error // error of the list; reported when Global is parsed
}

// sortVariables determines the scope of each name, and reports unknown names.
func sortVariables(vars variables, problems *Problems) *sorted {
	out := &sorted{global: variables{}, routes: map[string]variables{}}
	out.list, out.wrong = parseRouteNames(vars[Prefix+"ROUTES"])
	for _, name := range out.list {
		out.routes[configfile.RouteWord(name)] = variables{}
	}
	for _, name := range slices.Sorted(maps.Keys(vars)) { // for a stable order of messages
		if owners := out.owners(name); len(owners) > 1 {
			problems.errorf(Prefix+"ROUTES", vars[Prefix+"ROUTES"], "%s could set %s of one route or %s of another; rename one of them", name, owners[0].key, owners[1].key)
			continue
		}
		if out.take(name, vars[name]) || isServiceLink(name, vars[name]) {
			continue
		}
		if out.wrong != nil && isRouteVariable(name) {
			continue // its route may be misspelled in the list
		}
		problems.add(Problem{Variable: name, Value: vars[name], Message: explainUnknown(name, out.list)})
	}
	return out
}

// take stores a variable with a known name and reports whether it is one.
func (s *sorted) take(name, value string) bool {
	key := strings.TrimPrefix(name, Prefix)
	if _, known := globalKeys()[key]; known {
		s.global[key] = value
		return true
	}
	owners := s.owners(name)
	if len(owners) == 0 {
		return false
	}
	s.routes[owners[0].word][owners[0].key] = value
	return true
}

// routeKey is a variable of a route: the route's name as it stands in variables, and the key.
type routeKey struct{ word, key string }

// owners returns the routes that a variable could belong to, shortest name first. With the routes a
// and a-upstream, ROUTE_A_UPSTREAM_HOST could be UPSTREAM_HOST of a or HOST of a-upstream.
func (s *sorted) owners(name string) []routeKey {
	var found []routeKey
	for _, each := range splitRouteKey(strings.TrimPrefix(name, Prefix)) {
		if s.routes[each.word] != nil && routeKeys()[each.key] != nil {
			found = append(found, each)
		}
	}
	return found
}

func isRouteVariable(name string) bool { return strings.HasPrefix(name, Prefix+"ROUTE_") }

// splitRouteKey splits ROUTE_<NAME>_<KEY> at each underscore, since both parts may contain some.
func splitRouteKey(key string) []routeKey {
	key, ok := strings.CutPrefix(key, "ROUTE_")
	if !ok {
		return nil
	}
	var all []routeKey
	for i := range len(key) {
		if key[i] == '_' {
			all = append(all, routeKey{key[:i], key[i+1:]})
		}
	}
	return all
}
