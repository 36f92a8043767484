package configfile

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// addLines parses lines of NAME=VALUE.
//
// It ignores empty lines and lines that begin with #. It trims space around name and value.
// A value in single quotes is literal. A value in double quotes may contain \n, \t, \", \\
// and \$. After the closing quote only a comment may follow. In a value without quotes # is
// an ordinary character. Nothing is ever expanded. Lines may end in CRLF.
func (p *pairs) addLines(content []byte) {
	number := 0
	for line := range strings.SplitSeq(string(content), "\n") {
		number++
		name, value, err := parseLine(strings.TrimSpace(line))
		switch {
		case err != nil:
			p.wrong(number, "%w", err)
		case name != "":
			p.add(name, value, name, number)
		}
	}
	if len(p.pairs) == 0 && len(p.errs) > 0 && isYAMLMapping(content) {
		p.errs = []error{errors.New("expected lines NAME=VALUE; the name of a YAML file ends in .yaml or .yml")}
	}
}

// isYAMLMapping reports whether content is a YAML file under another name, or JSON.
func isYAMLMapping(content []byte) bool {
	var document yaml.Node
	return yaml.Unmarshal(content, &document) == nil && len(document.Content) > 0 && document.Content[0].Kind == yaml.MappingNode
}

// variableForm is the form of the name of a variable.
var variableForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// parseLine parses a line; it returns an empty name for an empty line or a comment.
func parseLine(line string) (name, value string, err error) {
	if line == "" || line[0] == '#' {
		return "", "", nil
	}
	name, value, found := strings.Cut(line, "=")
	name = strings.TrimSpace(name)
	if !found {
		return "", "", errors.New("expected NAME=VALUE")
	}
	if !variableForm.MatchString(name) {
		return "", "", fmt.Errorf("%q is not a variable's name", name)
	}
	value, err = unquote(strings.TrimSpace(value))
	return name, value, err
}

func unquote(s string) (string, error) {
	if s == "" || s[0] != '"' && s[0] != '\'' {
		return s, nil
	}
	quote := s[0]
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == quote:
			return b.String(), checkAfterQuote(s[i+1:])
		case c == '\\' && quote == '"':
			i++
			if i == len(s) {
				return "", errors.New("the closing quote is missing")
			}
			e, err := unescape(s[i])
			if err != nil {
				return "", err
			}
			b.WriteByte(e)
		default:
			b.WriteByte(c)
		}
	}
	return "", errors.New("the closing quote is missing")
}

func unescape(c byte) (byte, error) {
	switch c {
	case 'n':
		return '\n', nil
	case 't':
		return '\t', nil
	case '"', '\\', '$':
		return c, nil
	}
	return 0, fmt.Errorf(`\%c is not an escape in double quotes; write \\ for a backslash`, c)
}

func checkAfterQuote(rest string) error {
	trimmed := strings.TrimSpace(rest)
	if trimmed == "" || trimmed[0] == '#' && trimmed != rest {
		return nil
	}
	return errors.New("only a comment may follow the closing quote")
}
