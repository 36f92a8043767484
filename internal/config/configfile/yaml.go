package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// The YAML form is a mapping from names of settings, in lower case and without prefix, to values.
// Lists are joined with commas, and so are mappings, with each entry as "name: value". The routes
// are a list of mappings, each with its name:
//
//	upstream: http://app:3000
//	retry_on: [5xx, connect-failure]
//	routes:
//	  - name: search
//	    path: /search/*
//	    max_retries: 5
const (
	routesKey = "routes"
	nameKey   = "name"
)

// keyForm is the form of the name of a setting.
var keyForm = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

func (p *pairs) addYAML(content []byte) {
	var document, more yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return // only comments
	case err != nil:
		p.errs = append(p.errs, syntaxError(err, content))
		return
	}
	if !errors.Is(decoder.Decode(&more), io.EOF) {
		p.errs = append(p.errs, errors.New("expected one YAML document, found more"))
		return
	}
	root := document.Content[0]
	if isNull(root) {
		return
	}
	if root.Kind != yaml.MappingNode {
		p.wrong(root.Line, "expected settings, such as upstream: http://app:3000")
		return
	}
	p.addSettings(Prefix, "", root)
}

const aliasAdvice = "put quotes around a value that begins with * or &, which begins an alias or an anchor in YAML"

// advice adds to the library's messages what most often causes them.
var advice = strings.NewReplacer(
	"mapping values are not allowed in this context", "a name with a value cannot stand here; check the indentation, and quote a value that has a colon",
	"found character that cannot start any token", "found character that cannot start any token; indent with spaces, not with tabs, and quote a value that begins with @ or a backtick",
	"did not find expected key", "did not find expected key; check the indentation, and the quotes of this line and of those before it",
	"found unexpected end of stream", "the closing quote is missing",
	"did not find expected alphabetic or numeric character", aliasAdvice,
)

// begun holds what a syntax error can be in that is without its end: the error is where it begins, since
// the library notices only lines later, often at the end of the file.
var begun = map[string]bool{
	"while scanning a quoted scalar": true,
	"while scanning a simple key":    true,
	"while parsing a flow sequence":  true,
	"while parsing a flow mapping":   true,
}

// opened matches a line whose value or list entry begins with a quote; the value follows.
var opened = regexp.MustCompile(`^(?:[^"'#]*:\s+|\s*-\s+)(["'].*)$`)

// unclosedQuote returns the first line, up to last, whose value begins with a quote that does not end in it;
// 0 if there is none. The library notices such a quote only at the next one.
func unclosedQuote(content []byte, last int) int {
	number := 0
	for line := range strings.Lines(string(content)) {
		number++
		if match := opened.FindStringSubmatch(strings.TrimSpace(line)); match != nil && !isClosed(match[1]) {
			return number
		}
		if number == last {
			break
		}
	}
	return 0
}

// isClosed reports whether the quote at the start of s ends in s.
func isClosed(s string) bool {
	for i := 1; i < len(s); i++ {
		switch {
		case s[0] == '"' && s[i] == '\\':
			i++
		case s[i] == s[0]:
			return true
		}
	}
	return false
}

// syntaxError returns the library's error with its line, without quotes from the file.
func syntaxError(err error, content []byte) error {
	var syntax *yaml.LoadError
	if !errors.As(err, &syntax) {
		return err
	}
	if line := unclosedQuote(content, syntax.Mark.Line); line > 0 {
		return &LineError{line, errors.New("the closing quote is missing")}
	}
	text, line := advice.Replace(syntax.Message), syntax.Mark.Line
	if begun[syntax.ContextMsg] {
		line = syntax.ContextMark.Line
	}
	if strings.HasPrefix(text, "unknown anchor") { // the name of the anchor follows, which may be a value
		text = aliasAdvice
	}
	if line < 1 { // in the reader, before there are lines
		return errors.New(text)
	}
	return &LineError{line, errors.New(text)}
}

// addSettings adds the settings of a mapping. prefix is the prefix of their variables, and path of
// their keys, such as "routes[0]." or "".
func (p *pairs) addSettings(prefix, path string, mapping *yaml.Node) {
	named := false
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], deref(mapping.Content[i+1])
		switch {
		case key.Kind != yaml.ScalarNode:
			p.wrong(key.Line, "expected the name of a setting")
		case !keyForm.MatchString(key.Value):
			p.wrong(key.Line, "%q is not the name of a setting; %s", key.Value, meantKey(key.Value))
		case prefix == Prefix && key.Value == routesKey && value.Kind == yaml.SequenceNode:
			p.addRoutes(key, value)
		case prefix != Prefix && key.Value == nameKey: // read by routeName
			if named {
				p.wrong(key.Line, "the route has two names")
			}
			named = true
		default:
			p.addValue(prefix+strings.ToUpper(key.Value), path+key.Value, key.Line, value)
		}
	}
}

// meantKey returns what may have been meant by a key that is not in the form of one, such as maxRetries,
// max-retries or RETRYPROXY_MAX_RETRIES.
func meantKey(key string) string {
	meant := strings.ToLower(camelCase.ReplaceAllString(strings.ReplaceAll(key, "-", "_"), "${1}_$2"))
	if meant = strings.TrimPrefix(meant, strings.ToLower(Prefix)); keyForm.MatchString(meant) {
		return "did you mean " + meant + "?"
	}
	return "names have lower-case letters and underscores, such as max_retries"
}

// camelCase matches the border of two words within a name such as maxRetries.
var camelCase = regexp.MustCompile(`([a-z])([A-Z])`)

func (p *pairs) addValue(name, key string, line int, value *yaml.Node) {
	text, ok := valueText(value)
	switch {
	case !ok && name == Prefix+"ROUTES":
		p.wrong(value.Line, "%s: expected a list of routes, such as - name: search", key)
		return
	case !ok:
		p.wrong(value.Line, "%s: expected a value, a list of values or name: value lines; put quotes around a value that begins with & or !", key)
		return
	}
	p.add(name, text, key, line)
}

// addRoutes adds for each route its settings, and before them its place: a pair with the prefix of its
// variables as the name and without a value. Last are the names of the routes, as one variable.
func (p *pairs) addRoutes(key, list *yaml.Node) {
	var names []string
	for i, entry := range list.Content {
		route := deref(entry)
		key, name := fmt.Sprintf("routes[%d]", i), routeName(route)
		if name == "" {
			p.wrong(entry.Line, "expected a route with a name, such as - name: search")
			name = fmt.Sprintf("unnamed-%d", i) // so that its settings are checked too
		}
		names = append(names, name)
		prefix := Prefix + "ROUTE_" + RouteWord(name) + "_"
		p.pairs = append(p.pairs, Pair{prefix, "", entry.Line, key})
		if route.Kind == yaml.MappingNode {
			p.addSettings(prefix, key+".", route)
		}
	}
	p.add(Prefix+"ROUTES", strings.Join(names, ","), key.Value, key.Line)
}

// routeName returns the name of an entry in the list of routes, or "". An entry that is a single
// word is a route with its settings elsewhere.
func routeName(route *yaml.Node) string {
	if route.Kind == yaml.ScalarNode && !isNull(route) {
		return route.Value
	}
	if route.Kind != yaml.MappingNode {
		return ""
	}
	for i := 0; i+1 < len(route.Content); i += 2 {
		if value := deref(route.Content[i+1]); route.Content[i].Value == nameKey && value.Kind == yaml.ScalarNode && !isNull(value) {
			return value.Value
		}
	}
	return ""
}

// valueText returns a value as used in a variable. ok is false for nested lists and the like.
func valueText(value *yaml.Node) (text string, ok bool) {
	switch value.Kind {
	case yaml.ScalarNode:
		return scalarText(value), !isMark(value)
	case yaml.SequenceNode:
		return joined(value.Content, 1, ",")
	case yaml.MappingNode:
		return joined(value.Content, 2, ", ")
	}
	return "", false
}

// joined joins scalars with a separator, size of them at a time with ": ".
func joined(nodes []*yaml.Node, size int, separator string) (text string, ok bool) {
	var parts []string
	for i := 0; i+size <= len(nodes); i += size {
		var words []string
		for _, n := range nodes[i : i+size] {
			if n = deref(n); n.Kind != yaml.ScalarNode || isMark(n) {
				return "", false
			}
			words = append(words, scalarText(n))
		}
		parts = append(parts, strings.Join(words, ": "))
	}
	return strings.Join(parts, separator), true
}

// scalarText returns a scalar as written: the setting interprets 1e3, 0x10 and yes.
func scalarText(n *yaml.Node) string {
	if isNull(n) {
		return ""
	}
	return n.Value
}

// isMark reports whether a scalar is only an anchor or a tag. An unquoted value that begins with &
// or ! is parsed as one.
func isMark(n *yaml.Node) bool {
	return n.Value == "" && (n.Anchor != "" || strings.HasPrefix(n.Tag, "!") && !strings.HasPrefix(n.Tag, "!!"))
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// deref returns the value of an alias. Values are never nested, so aliases cannot multiply.
func deref(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
