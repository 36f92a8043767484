package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/retryproxy/retryproxy/policy"
)

// row is a heading with charts below it.
type row struct {
	title  string
	charts []chart
}

// chart is what is said of a panel; the rest follows from its kind.
type chart struct {
	title, about string
	kind         kind
	unit         string // of Grafana's list of units
	queries      []query
	max          *float64 // of the axis; nil lets it follow
	warn, bad    *float64 // from where a stat is yellow and red
	words        map[string]word
	names        map[string]string // of series, by the value of their label
	wide         bool
}

type query struct{ expr, legend string }

// word is how a value of a timeline is shown.
type word struct{ text, color string }

type kind string

const (
	lines    kind = "lines"
	stacked  kind = "stacked"
	stat     kind = "stat"
	timeline kind = "state-timeline"
	tableOf  kind = "table"
)

func at(v float64) *float64 { return &v }

func (c chart) width() int {
	switch {
	case c.kind == stat:
		return 4
	case c.wide:
		return 2 * width
	}
	return width
}

func (c chart) height() int {
	if c.kind == stat {
		return statHeight
	}
	return height
}

func (c chart) panel() panel {
	p := panel{Type: c.grafanaType(), Title: c.title, Description: c.about, Datasource: &source, Options: c.options()}
	for i, q := range c.queries {
		p.Targets = append(p.Targets, target{
			RefID: string(rune('A' + i)), Datasource: source, Expr: q.expr, LegendFormat: q.legend, Instant: c.kind == tableOf,
			Exemplar: strings.Contains(q.expr, "retryproxy_request_duration_seconds"),
		})
	}
	d := defaults{Unit: c.unit, Max: c.max, Custom: c.custom(), Thresholds: c.thresholds(), Mappings: c.mappings()}
	if c.kind == lines || c.kind == stacked {
		d.Min = at(0) // a curve that does not begin at 0 lies about its size
	}
	p.FieldConfig = &fieldConfig{Defaults: d, Overrides: c.overrides()}
	return p
}

// overrides show a series by its name in place of its label.
func (c chart) overrides() []any {
	list := []any{}
	for _, label := range slices.Sorted(maps.Keys(c.names)) {
		list = append(list, map[string]any{
			"matcher":    map[string]any{"id": "byName", "options": label},
			"properties": []any{map[string]any{"id": "displayName", "value": c.names[label]}},
		})
	}
	return list
}

// outcomeNames returns the words of all outcomes, by their labels.
func outcomeNames() map[string]string {
	names := map[string]string{}
	for _, o := range policy.AllOutcomes() {
		names[o.String()] = o.Words()
	}
	return names
}

// reasonNames returns the words of all reasons for a retry, by their labels.
func reasonNames() map[string]string {
	names := map[string]string{}
	for _, r := range policy.AllReasons() {
		if r.ForRetry() {
			names[r.String()] = r.Words()
		}
	}
	return names
}

func (c chart) grafanaType() string {
	switch c.kind {
	case lines, stacked:
		return "timeseries"
	}
	return string(c.kind)
}

func (c chart) custom() any {
	switch c.kind {
	case lines:
		return map[string]any{"lineWidth": 1, "fillOpacity": 0, "showPoints": "never", "spanNulls": false}
	case stacked:
		return map[string]any{"lineWidth": 1, "fillOpacity": 40, "showPoints": "never", "stacking": map[string]any{"mode": "normal"}}
	}
	return nil
}

func (c chart) options() any {
	legend := map[string]any{"displayMode": "table", "placement": "bottom", "calcs": []string{"lastNotNull", "max"}}
	switch c.kind {
	case lines, stacked:
		return map[string]any{"legend": legend, "tooltip": map[string]any{"mode": "multi", "sort": "desc"}}
	case stat:
		return map[string]any{"colorMode": "value", "graphMode": "area", "reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}}}
	case timeline:
		return map[string]any{"mergeValues": true, "showValue": "auto", "legend": map[string]any{"displayMode": "list", "placement": "bottom"}}
	}
	return nil
}

func (c chart) thresholds() *thresholds {
	if c.warn == nil && c.bad == nil {
		return nil
	}
	t := &thresholds{Mode: "absolute", Steps: []step{{Color: "green"}}}
	if c.warn != nil {
		t.Steps = append(t.Steps, step{"yellow", c.warn})
	}
	if c.bad != nil {
		t.Steps = append(t.Steps, step{"red", c.bad})
	}
	return t
}

func (c chart) mappings() []any {
	if c.words == nil {
		return nil
	}
	options := map[string]any{}
	for value, w := range c.words {
		options[value] = map[string]any{"text": w.text, "color": w.color, "index": len(value)}
	}
	return []any{map[string]any{"type": "value", "options": options}}
}
