package config

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/retryproxy/retryproxy/internal/config/configfile"
)

// origin is where a file sets a variable.
type origin struct {
	place string // file:line, or the file
	key   string // the name in the file: max_retries, routes[1].max_retries, or the variable's
}

// origins is where the settings come from. The zero value is the environment.
type origins struct {
	files      map[string]origin // variables that files set, and the prefix of the variables of a route in a YAML file
	yamlFile   string            // the configuration file if it is YAML
	environ    variables         // set in the environment, if there is a yamlFile
	unread     bool              // the configuration file could not be read
	unprefixed bool              // the environment has UPSTREAM without the prefix
}

// add notes a pair of the file at path.
func (o *origins) add(p configfile.Pair, path string) {
	if o.files == nil {
		o.files = map[string]origin{}
	}
	o.files[p.Name] = origin{placeOf(path, p.Line), cmp.Or(p.Key, p.Name)}
}

// find returns the origin of a variable. For a variable of a route that is not set, it is that of the
// route. For another one that is not set, it is a YAML file, where it can be set.
func (o *origins) find(variable string) (origin, bool) {
	if at, inFile := o.files[variable]; inFile {
		return at, true
	}
	if _, set := o.environ[variable]; set {
		return origin{}, false
	}
	for _, each := range slices.Backward(splitRouteKey(strings.TrimPrefix(variable, Prefix))) { // the longest name first
		if at, inFile := o.files[Prefix+"ROUTE_"+each.word+"_"]; inFile {
			return origin{at.place, at.key + "." + strings.ToLower(each.key)}, true
		}
	}
	key, ours := strings.CutPrefix(variable, Prefix)
	if o.yamlFile == "" || !ours || isRouteVariable(variable) {
		return origin{}, false
	}
	return origin{o.yamlFile, strings.ToLower(key)}, true
}

func placeOf(path string, line int) string { return path + ":" + strconv.Itoa(line) }

// locate gives each problem the place of its variable in a file, and names settings as that file does.
func (o *origins) locate(problems Problems) {
	for i := range problems {
		p := &problems[i]
		at, inFile := o.find(p.Variable)
		if !inFile || p.Place != "" {
			continue
		}
		p.Place, p.Key = at.place, at.key
		if at.key != p.Variable {
			p.Message = o.inYAML(p.Message, p.Variable, at.key)
		}
	}
}

// variableInText matches a variable in a message, and the sign after it.
var variableInText = regexp.MustCompile(Prefix + `[A-Z0-9_]*[A-Z0-9]=?`)

// inYAML replaces variables in a message about variable by what a YAML file calls them. yamlKey is what
// it calls variable. One with a value that is not of the file stays, since the environment sets it.
func (o *origins) inYAML(message, variable, yamlKey string) string {
	route := ""
	if key := strings.TrimPrefix(variable, Prefix); isRouteVariable(variable) {
		last := yamlKey[strings.LastIndexByte(yamlKey, '.')+1:]
		route = Prefix + strings.TrimSuffix(key, strings.ToUpper(last))
	}
	return variableInText.ReplaceAllStringFunc(message, func(found string) string {
		name, hasValue := strings.CutSuffix(found, "=")
		at, inFile := o.files[name]
		switch {
		case inFile:
			name = at.key
		case hasValue || name == Prefix+"CONFIG_FILE":
			return found
		case route != "" && strings.HasPrefix(name, route):
			name = strings.ToLower(strings.TrimPrefix(name, route))
		case !isRouteVariable(name):
			name = strings.ToLower(strings.TrimPrefix(name, Prefix))
		}
		if hasValue {
			name += "="
		}
		return name
	})
}

// Place returns where a file sets the variable, as file:line. It returns "" if no file does.
func (s *Settings) Place(variable string) string { return s.from.files[variable].place }

// Locate gives each problem the place of its variable in the file that sets it, and marks values that are
// defaults.
func (s *Settings) Locate(problems Problems) {
	for i := range problems {
		p := &problems[i]
		p.Default = p.Value != "" && !s.isSet(p.Variable) && s.hasDefault(p.Variable)
	}
	s.from.locate(problems)
}

// isSet reports whether the environment or a file sets the variable.
func (s *Settings) isSet(variable string) bool {
	for _, r := range s.All() {
		for _, name := range r.own {
			if name == variable {
				return true
			}
		}
	}
	return false
}

// hasDefault reports whether the variable is that of a setting, not an unknown one.
func (s *Settings) hasDefault(variable string) bool {
	return globalKeys()[strings.TrimPrefix(variable, Prefix)] != nil
}
