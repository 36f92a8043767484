package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/retryproxy/retryproxy/internal/config/configfile"
)

// DefaultRoute is the name of the route for requests that match no other.
const DefaultRoute = "default"

// maxRouteName keeps metric labels readable and within the 63 bytes that Kubernetes allows
// for a label.
const maxRouteName = 63

// RouteNames holds the names of the routes, as written and in order.
type RouteNames []string

// parseRouteNames parses names separated by commas. Names must differ by more than case,
// since variables are in upper case. With an error it returns the names that are valid.
func parseRouteNames(text string) (RouteNames, error) {
	var errs []error
	seen := map[string]bool{}
	names := RouteNames{}
	for _, name := range splitList(text) {
		switch upper := configfile.RouteWord(name); {
		case !isRouteName(name):
			errs = append(errs, fmt.Errorf("the name %q must have 1 to 63 letters, digits and dashes between them", name))
		case upper == strings.ToUpper(DefaultRoute):
			errs = append(errs, errors.New("the name default is reserved for the route of requests that match no other route; set it by variables without ROUTE_"))
		case seen[upper]:
			errs = append(errs, fmt.Errorf("%q is listed twice", name))
		default:
			seen[upper] = true
			names = append(names, name)
		}
	}
	return names, errors.Join(errs...)
}

// String is the inverse of parseRouteNames.
func (n RouteNames) String() string { return strings.Join(n, ",") }

// routeName matches names of letters and digits, with dashes between them.
var routeName = regexp.MustCompile(`^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$`)

func isRouteName(s string) bool { return len(s) <= maxRouteName && routeName.MatchString(s) }

// routePrefix returns the prefix of the names of a route's variables.
func routePrefix(name string) string { return Prefix + "ROUTE_" + configfile.RouteWord(name) + "_" }

// RouteVariable returns the variable that sets a key for the route of that name.
func RouteVariable(name, key string) string { return routePrefix(name) + key }

// Methods is a list of HTTP methods, as written and in order.
type Methods []string

// parseMethods parses method names separated by commas. Methods are case-sensitive (RFC
// 9110 section 9.1), so a lower-case one is an error.
func parseMethods(text string) (Methods, error) {
	var errs []error
	list := Methods{}
	for _, s := range splitList(text) {
		switch {
		case !isToken(s):
			errs = append(errs, fmt.Errorf("%q is not a method", s))
		case s != strings.ToUpper(s):
			errs = append(errs, fmt.Errorf("%q is not in upper case", s))
		default:
			list = append(list, s)
		}
	}
	return list, errors.Join(errs...)
}

// String is the inverse of parseMethods.
func (m Methods) String() string { return strings.Join(m, ",") }

// splitList splits at commas, trims, and drops empty parts, so that a list may end in a
// comma.
func splitList(s string) []string {
	var parts []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

// isToken reports whether s is a token (RFC 9110 section 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(s[i])) {
			return false
		}
	}
	return s != ""
}
