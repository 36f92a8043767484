// Package roff escapes text for manual pages (groff_man(7)).
package roff

import "strings"

// Escape escapes text so that it is not read as requests: backslashes and hyphens are escaped, and no
// line begins with a dot or a quote.
func Escape(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

// Arg returns text as one argument of a request.
func Arg(s string) string { return `"` + strings.ReplaceAll(Escape(s), `"`, `\(dq`) + `"` }
