package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// queries returns all PromQL expressions of the dashboard: of panels, annotations and variables.
func queries() []string {
	var all []string
	for _, r := range rows {
		for _, c := range r.charts {
			for _, q := range c.queries {
				all = append(all, q.expr)
			}
		}
	}
	for _, a := range annotations {
		all = append(all, a.Expr)
	}
	for _, v := range variables() {
		if v.Type == "query" {
			inner := strings.TrimSuffix(strings.TrimPrefix(v.Query, "label_values("), ")")
			all = append(all, inner[:strings.LastIndex(inner, ",")])
		}
	}
	return all
}

// fill puts something in the place of Grafana's variables.
var fill = strings.NewReplacer("$__rate_interval", "5m", "$namespace", ".*", "$job", ".*", "$instance", ".*", "$route", ".*", "$upstream", ".*")

// queriesAsRules is a rules file with each query as a recording, so that
// promtool parses them.
func queriesAsRules() string {
	var b strings.Builder
	b.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for i, q := range queries() {
		fmt.Fprintf(&b, "  - record: dashboard:query:%d\n    expr: '%s'\n", i, strings.ReplaceAll(fill.Replace(q), "'", "''"))
	}
	return b.String()
}

// The queries of the documentation, and their tests for promtool, which name them.
const (
	queriesPage  = "docs/reference/queries.md"
	queriesTests = "deploy/generate/queries.tests.yaml"
)

var (
	queryBlock = regexp.MustCompile("(?ms)^```promql ?(\\S*)\n(.*?)^```$")
	queryName  = regexp.MustCompile(`(?m)^( *)- expr: \$(\S+)$`)
)

// queryTests returns the tests with the queries of the page in the place of their names. Each query
// must have a name and a test.
func queryTests(tests, page string) (string, error) {
	queries := map[string]string{}
	for _, block := range queryBlock.FindAllStringSubmatch(page, -1) {
		name := block[1]
		if _, twice := queries[name]; twice || name == "" {
			return "", fmt.Errorf("%s: a name of its own is missing after ```promql %s", queriesPage, name)
		}
		queries[name] = block[2]
	}
	untested := maps.Clone(queries)
	var unknown []string
	filled := queryName.ReplaceAllStringFunc(tests, func(line string) string {
		m := queryName.FindStringSubmatch(line)
		indent, name := m[1], m[2]
		if _, ok := queries[name]; !ok {
			unknown = append(unknown, name)
		}
		delete(untested, name)
		var b strings.Builder
		b.WriteString(indent + "- expr: |")
		for l := range strings.Lines(queries[name]) {
			b.WriteString("\n" + indent + "    " + strings.TrimRight(l, "\n"))
		}
		return b.String()
	})
	if len(untested)+len(unknown) > 0 {
		return "", fmt.Errorf("%s: without a test: %q; in %s, but not there: %q", queriesPage, slices.Sorted(maps.Keys(untested)), queriesTests, unknown)
	}
	return filled, nil
}
