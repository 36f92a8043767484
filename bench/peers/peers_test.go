package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/bench/internal/draw"
	"github.com/retryproxy/retryproxy/bench/internal/rig"
	"github.com/retryproxy/retryproxy/ctl/plot/picture"
)

// three rounds in which the machine became three times slower, and ours is
// steadily at 0.8 of HAProxy's cost.
func rounds() *result {
	r := &result{Work: "some work", Unit: "us CPU", Goal: "<= 0.9"}
	for _, base := range []float64{10, 30, 20} {
		r.add(haproxy, base)
		r.add(nginx, base*0.7)
		r.add(ours, base*0.8)
	}
	r.sent(ours, &rig.Result{Requests: 1000, Failed: 1})
	return r
}

func TestRatiosAreTakenWithinRounds(t *testing.T) {
	r := rounds()
	r.add(ours, 1000)
	r.add(haproxy, 10) // a round in which something else ran
	r.add(nginx, 7)
	r.conclude(func(r *result) bool { return r.ratio() <= 0.9 })
	v := r.of(ours)
	if v.Ratio < 0.799 || v.Ratio > 0.801 || v.High != 100 || !r.Met {
		t.Errorf("%+v, met %v", v, r.Met)
	}
	if r.belowNginx() {
		t.Error("0.8 is said to be below 0.7")
	}
	if got := r.failedShare(); got != 0.001 {
		t.Errorf("share failed %v", got)
	}
}

func TestGoalsCanBeMissed(t *testing.T) {
	for _, c := range cases {
		r := &result{}
		for range 3 {
			r.add(haproxy, 1)
			r.add(nginx, 1)
			v := 1000.0
			switch {
			case c.name == "cores":
				v = 1
			case isCount(c.name):
				v = 0
			}
			r.add(ours, v)
		}
		if r.conclude(c.met); r.Met {
			t.Errorf("%s: met by anything", c.name)
		}
		if isCount(c.name) {
			continue // a count is no goal
		}
		r = &result{}
		r.add(haproxy, 10)
		r.add(nginx, 10)
		r.add(ours, 2)
		if r.conclude(c.met); !r.Met {
			t.Errorf("%s: not met by 2 where HAProxy takes 10", c.name)
		}
	}
}

func TestDocument(t *testing.T) {
	r := rounds()
	r.conclude(func(*result) bool { return false })
	d := &document{Results: []*result{r}}
	var out bytes.Buffer
	file := filepath.Join(t.TempDir(), "peers.json")
	d.print(&out)
	var files draw.Files
	f := &rig.Flags{FlagSet: flag.NewFlagSet("peers", flag.ContinueOnError)}
	files.Flags(f)
	if err := errors.Join(f.Parse([]string{"--json", file}), files.Write(d, nil, picture.Size{})); err != nil {
		t.Fatal(err)
	}
	want := "| some work | us CPU | 20.0 | 14.0 (0.70, 0.70 to 0.70) | 16.0 (0.80, 0.80 to 0.80), 0.1000 % failed | <= 0.9 | missed |"
	if !strings.Contains(out.String(), want) {
		t.Errorf("%s", out.String())
	}
	b, err := os.ReadFile(file)
	var back document
	if err == nil {
		err = json.Unmarshal(b, &back)
	}
	if err != nil || back.Results[0].Values[ours].Median != 16 {
		t.Errorf("%v, %+v", err, back.Results)
	}
}

func TestArguments(t *testing.T) {
	for _, bad := range []string{"--cases=none", "--growth=colour", "--rounds=0", "--waiting=0", "more"} {
		var said bytes.Buffer
		if code := rig.Program(run).Run(t.Context(), "peers", []string{bad}, &said, &said); code != rig.Usage || said.Len() == 0 {
			t.Errorf("%s: exit code %d, %q", bad, code, &said)
		}
	}
	s, err := parse([]string{"--cases", "get,idle"}, io.Discard)
	if err != nil || strings.Join(s.cases, " ") != "get idle" || strings.Join(s.proxies(), " ") != "haproxy nginx retryproxy" {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := parse(nil, io.Discard); err != nil || slices.ContainsFunc(s.cases, isCount) || len(s.cases) != len(cases)-3 || len(s.growth) != 0 {
		t.Errorf("by default %v, %v, %v", s.cases, s.growth, err)
	}
	if s, err := parse([]string{"--growth", "routes"}, io.Discard); err != nil || len(s.cases) != 0 {
		t.Errorf("with --growth also %v, %v", s.cases, err)
	}
}

func measured() *document {
	d := &document{}
	for _, a := range axes {
		g := &growth{Name: a.name, Label: a.label}
		for i, n := range a.values {
			p := point{Value: n, Ours: float64(20 + i)}
			if !a.alone {
				p.Peer, p.Ratio = 25, p.Ours/25
			}
			g.Points = append(g.Points, p)
		}
		d.Growths = append(d.Growths, g)
	}
	return d
}

func TestEveryAxisIsDrawnAndTold(t *testing.T) {
	d := measured()
	if err := d.figure().Validate(); err != nil {
		t.Error(err)
	}
	var out bytes.Buffer
	d.print(&out)
	for _, a := range axes {
		if !strings.Contains(out.String(), "| "+a.label+" | retryproxy |") {
			t.Errorf("nothing is told of %s:\n%s", a.name, &out)
		}
	}
}

// Zero has no place on a logarithmic scale, and the points beside it keep theirs.
func TestZeroIsLeftOutOfALogarithmicScaleOnly(t *testing.T) {
	g := &growth{Points: []point{{Value: 0, Ours: 1e6}, {Value: 7, Ours: 2e6}}}
	of := func(p *point) float64 { return p.Ours }
	if s := g.series("x", true, of); len(s.X) != 1 || s.X[0] != 7 || s.Y[0] != 2 {
		t.Errorf("%v %v", s.X, s.Y)
	}
	if s := g.series("x", false, of); len(s.X) != 2 || s.Y[0] != 1 {
		t.Errorf("%v %v", s.X, s.Y)
	}
}

func TestManyRoutesAreWrittenOnce(t *testing.T) {
	dir := t.TempDir()
	env, err := manyRoutes(3, dir)
	if err != nil || len(env) != 1 {
		t.Fatal(env, err)
	}
	_, file, _ := strings.Cut(env[0], "=")
	b, err := os.ReadFile(file)
	want := "RETRYPROXY_ROUTE_R0_PATH=/small/0/*\nRETRYPROXY_ROUTE_R1_PATH=/small/1/*\nRETRYPROXY_ROUTE_R2_PATH=/small/2/*\nRETRYPROXY_ROUTES=r0,r1,r2\n"
	if err != nil || string(b) != want {
		t.Errorf("%q, %v", b, err)
	}
}

// As callgrind_annotate prints it.
func TestCountsAreThoseOfCallgrind(t *testing.T) {
	total, table, err := annotated(`--------------------------------------------------------------------------------
Ir
--------------------------------------------------------------------------------
1,700 (100.0%)  PROGRAM TOTALS

--------------------------------------------------------------------------------
Ir             file:function
--------------------------------------------------------------------------------
1,000 (58.82%)  proxy/loop.go:github.com/retryproxy/retryproxy/proxy.(*exchange).run [/tmp/retryproxy]
  480 (28.24%)  proxy/loop.go:github.com/retryproxy/retryproxy/proxy.(*exchange).run'2 [/tmp/retryproxy]
  200 (11.76%)  metrics/route.go:github.com/retryproxy/retryproxy/metrics.(*Route).RequestDone [/tmp/retryproxy]
   20 ( 1.18%)  ???:0x000000000000079d [???]
`)
	if err != nil || total != 1700 || strings.Count(table, "\n") != 5 || !strings.Contains(table, "1,000 (58.82%)") {
		t.Errorf("%v, %v of\n%s", err, total, table)
	}
	if _, _, err := annotated("nothing"); err == nil {
		t.Error("nothing is counted, and that is no error")
	}
}
