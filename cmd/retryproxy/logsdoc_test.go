package main

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/reference/logs.md has the fields of a line, in its table and in its example.
func TestTheFieldsOfALogLineAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/logs.md")
	if err != nil {
		t.Fatal(err)
	}
	p := startProxy(t, "UPSTREAM="+failing(t, "a", 1).URL, "BACKOFF_BASE=1ms", "ACCESS_LOG=true")
	p.get(0, "/")
	fieldsOf := func(text string) (line, attempts []string) {
		var m map[string]any
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		seen := map[string]bool{}
		for _, a := range m["attempts"].([]any) {
			for k := range a.(map[string]any) {
				seen[k] = true
			}
		}
		return slices.Sorted(maps.Keys(m)), slices.Sorted(maps.Keys(seen))
	}
	lineWith := func(text, part string) string {
		for line := range strings.Lines(text) {
			if strings.Contains(line, part) {
				return line
			}
		}
		return ""
	}
	p.await("line", func() bool { return lineWith(p.log.String(), `"msg":"request"`) != "" })
	line, attempts := fieldsOf(lineWith(p.log.String(), `"msg":"request"`))
	if exampleLine, exampleAttempts := fieldsOf(lineWith(string(page), `"msg":"request"`)); !slices.Equal(line, exampleLine) || !slices.Equal(attempts, exampleAttempts) {
		t.Errorf("a line has %q with attempts of %q, the example %q and %q", line, attempts, exampleLine, exampleAttempts)
	}
	table, _, _ := strings.Cut(string(page), "\n## ")
	var rows []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllStringSubmatch(table, -1) {
		for _, name := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(row[1], -1) {
			rows = append(rows, name[1])
		}
	}
	if slices.Sort(rows); !slices.Equal(rows, line) {
		t.Errorf("a line has %q, the table %q", line, rows)
	}
}
