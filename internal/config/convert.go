package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/retryproxy/retryproxy/internal/config/configfile"
)

// YAML returns the variables of environ, and of the files that it names, as a YAML configuration
// file, in the order of the reference. Unknown names and names that are set twice are reported and
// left out. Values are copied unchecked, including passwords.
func YAML(environ []string) ([]byte, Problems) { return read(environ).yaml() }

func (in *input) yaml() ([]byte, Problems) {
	delete(in.vars, Prefix+"CONFIG_FILE")
	for _, name := range slices.Sorted(maps.Keys(in.vars)) {
		if !utf8.ValidString(in.vars[name]) {
			in.problems.errorf(name, "", "is not UTF-8, and YAML holds nothing else")
		}
	}
	names := sortVariables(in.vars, &in.problems)
	if list := in.vars[Prefix+"ROUTES"]; list != "" && names.wrong != nil {
		in.problems.errorf(Prefix+"ROUTES", list, "%s", oneLine(names.wrong))
	}
	in.from.locate(in.problems)
	delete(names.global, "ROUTES") // replaced by the list of routes
	settings := configfile.Settings{Values: fileValues(names.global, globalSettings, sharedSettings)}
	for _, name := range names.list {
		settings.Routes = append(settings.Routes, configfile.Route{
			Name:   name,
			Values: fileValues(names.routes[configfile.RouteWord(name)], matcherSettings, sharedSettings),
		})
	}
	return configfile.MarshalYAML(settings), in.problems
}

// fileValues returns the values of the lists' settings that are set.
func fileValues(vars variables, lists ...[]Setting) []configfile.Value {
	var all []configfile.Value
	for i := range lists {
		for j := range lists[i] {
			s := &lists[i][j]
			if text, set := vars[s.Key]; set {
				all = append(all, configfile.Value{Key: strings.ToLower(s.Key), Text: text, Plain: s.isPlain(text)})
			}
		}
	}
	return all
}

// isPlain reports whether a value is a number or a boolean in YAML, and the same one.
func (s *Setting) isPlain(text string) bool {
	switch s.Unit {
	case "bool":
		return slices.Contains([]string{"true", "false"}, text)
	case "count":
		n, err := strconv.Atoi(text)
		return err == nil && strconv.Itoa(n) == text
	}
	return false
}
