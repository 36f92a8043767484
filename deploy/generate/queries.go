package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

// queriesOf are all PromQL expressions of the dashboard: of panels, annotations
// and variables.
func queriesOf(dashboard []byte) ([]string, error) {
	var d struct {
		Panels      []struct{ Targets []struct{ Expr string } }
		Annotations struct{ List []struct{ Expr string } }
		Templating  struct {
			List []struct{ Type, Query string }
		}
	}
	if err := json.Unmarshal(dashboard, &d); err != nil {
		return nil, err
	}
	var all []string
	for _, p := range d.Panels {
		for _, t := range p.Targets {
			all = append(all, t.Expr)
		}
	}
	for _, a := range d.Annotations.List {
		all = append(all, a.Expr)
	}
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			inner := strings.TrimSuffix(strings.TrimPrefix(v.Query, "label_values("), ")")
			all = append(all, inner[:strings.LastIndex(inner, ",")])
		}
	}
	return all, nil
}

// fill puts something in the place of Grafana's variables.
var fill = strings.NewReplacer("$__rate_interval", "5m", "$namespace", ".*", "$job", ".*", "$instance", ".*", "$route", ".*", "$upstream", ".*")

// queriesAsRules is a rules file with each query as a recording, so that
// promtool parses them.
func queriesAsRules(dashboard []byte) (string, error) {
	queries, err := queriesOf(dashboard)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for i, q := range queries {
		fmt.Fprintf(&b, "  - record: dashboard:query:%d\n    expr: '%s'\n", i, strings.ReplaceAll(fill.Replace(q), "'", "''"))
	}
	return b.String(), nil
}
