package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
	"github.com/retryproxy/retryproxy/ctl/plot"
)

// axis is something that grows.
type axis struct {
	name, label string
	values      []int
	alone       bool // HAProxy does not do the same work
	load        func(n int) rig.Load
	env         func(n int, dir string) ([]string, error) // settings of retryproxy; nil: the defaults
}

var axes = []axis{
	{name: "connections", label: "connections of clients", values: []int{1, 4, 16, 64, 256, 1000, 4000, rig.AtMost(10_000)},
		load: func(n int) rig.Load { return rig.Load{URL: "/small", Connections: n} }},
	{name: "routes", label: "routes", values: []int{1, 10, 100, 1000, 10_000}, alone: true, env: manyRoutes,
		load: func(n int) rig.Load { return rig.Load{URL: fmt.Sprintf("/small/%d/orders", n-1), Connections: 64} }},
	{name: "response", label: "bytes of a response's body", values: bodies,
		load: func(n int) rig.Load { return rig.Load{URL: fmt.Sprintf("/bytes/%d", n), Connections: forBody(n)} }},
	{name: "request", label: "bytes of a request's body", values: bodies,
		load: func(n int) rig.Load {
			return rig.Load{URL: "/sink", Connections: forBody(n), Method: "PUT", BodyBytes: n}
		}},
	{name: "failing", label: "percent of responses that are 503", values: []int{0, 1, 5, 10, 20, 30, 50},
		load: func(n int) rig.Load { return rig.Load{URL: fmt.Sprintf("/fail/%d", n), Connections: 512} }},
	{name: "fields", label: "headers of a request besides Host", values: []int{0, 10, 20, 40, 80},
		load: func(n int) rig.Load { return rig.Load{URL: "/small", Connections: 64, Headers: n} }},
}

var bodies = []int{0, kib, 16 * kib, 256 * kib, mib, 16 * mib, 64 * mib}

// forBody returns how many connections keep the proxy busy without filling the memory with bodies.
func forBody(bytes int) int {
	switch {
	case bytes <= 16*kib:
		return 64
	case bytes <= mib:
		return 16
	}
	return 4
}

// manyRoutes writes a settings file with n routes by path. 10 000 routes would be too long for the environment.
func manyRoutes(n int, dir string) ([]string, error) {
	var names []string
	var b strings.Builder
	for i := range n {
		names = append(names, fmt.Sprintf("r%d", i))
		fmt.Fprintf(&b, "RETRYPROXY_ROUTE_R%d_PATH=/small/%[1]d/*\n", i)
	}
	fmt.Fprintf(&b, "RETRYPROXY_ROUTES=%s\n", strings.Join(names, ","))
	return []string{"RETRYPROXY_CONFIG_FILE=" + dir + "/routes.env"}, os.WriteFile(dir+"/routes.env", []byte(b.String()), 0o600)
}

// growth is the result of an axis.
type growth struct {
	Name   string  `json:"name"`
	Label  string  `json:"label"`
	Points []point `json:"points"`
}

// point is the cost at one value: microseconds of CPU time per request.
type point struct {
	Value  int     `json:"value"`
	Ours   float64 `json:"retryproxy_us"`
	Peer   float64 `json:"haproxy_us,omitempty"`
	Ratio  float64 `json:"ratio,omitempty"` // median of those within the rounds
	Failed float64 `json:"failed_share,omitempty"`
}

// grow measures the axes of --growth.
func (s *stage) grow(d *document) error {
	for _, a := range axes {
		if !slices.Contains(s.growth, a.name) {
			continue
		}
		g := &growth{Name: a.name, Label: a.label}
		d.Growths = append(d.Growths, g)
		for _, n := range a.values {
			r := &result{Case: fmt.Sprintf("%s %d", a.name, n), Unit: "us CPU"}
			if err := s.point(&a, n, r); err != nil {
				return fmt.Errorf("%s: %w", r.Case, err)
			}
			r.conclude(func(*result) bool { return true })
			g.Points = append(g.Points, point{n, r.ours(), r.of(haproxy).Median, r.ratio(), r.failedShare()})
		}
	}
	return nil
}

// point measures new processes at one value of an axis.
func (s *stage) point(a *axis, n int, r *result) error {
	var b rig.Bed
	defer b.End()
	mine := *s
	if mine.peers = []string{haproxy}; a.alone {
		mine.peers = nil
	}
	if a.env != nil {
		var err error
		if mine.env, err = a.env(n, b.TempDir()); err != nil {
			return err
		}
	}
	return cost(a.load(n))(&mine, r)
}

func (g *growth) print(w io.Writer) {
	fmt.Fprintf(w, "\nCPU time per request in microseconds, median of the rounds; the ratio is the median of those within a round.\n\n| %s | retryproxy | HAProxy | ratio |\n| ---: | ---: | ---: | ---: |\n", g.Label)
	for _, p := range g.Points {
		failed, peer := "", " | "
		if p.Failed > 0 {
			failed = fmt.Sprintf(" (%.3g %% of clients got an error)", 100*p.Failed)
		}
		if p.Peer > 0 {
			peer = fmt.Sprintf("%.1f | %.2f", p.Peer, p.Ratio)
		}
		fmt.Fprintf(w, "| %d | %.1f%s | %s |\n", p.Value, p.Ours, failed, peer)
	}
}

// figure draws a panel for each axis. Values above 100 have a logarithmic scale.
func (d *document) figure() *plot.Figure {
	f := &plot.Figure{Title: "CPU time of a request", Columns: 2}
	for _, g := range d.Growths {
		p := plot.Panel{
			X: plot.Axis{Label: g.Label, Log: g.Points[len(g.Points)-1].Value > 100},
			Y: plot.Axis{Label: "of a request", Unit: plot.Seconds, Log: g.Name == "response" || g.Name == "request"},
		}
		p.Series = append(p.Series, g.series("retryproxy", p.X.Log, func(p *point) float64 { return p.Ours }))
		if g.Points[0].Peer > 0 {
			p.Series = append(p.Series, g.series("HAProxy", p.X.Log, func(p *point) float64 { return p.Peer }))
		}
		f.Panels = append(f.Panels, p)
	}
	return f
}

// series returns a series. It leaves out zero on a logarithmic scale.
func (g *growth) series(name string, log bool, of func(*point) float64) plot.Series {
	s := plot.Series{Name: name}
	for i := range g.Points {
		if p := &g.Points[i]; !log || p.Value > 0 {
			s.X, s.Y = append(s.X, float64(p.Value)), append(s.Y, of(p)/1e6)
		}
	}
	return s
}
