package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/retryproxy/retryproxy/bench/internal/command"
	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == rig.RoleUpstream {
		_ = rig.ServeUpstream(os.Args[2:])
		os.Exit(command.Failed)
	}
	goleak.VerifyTestMain(m)
}

func measured() *document {
	d := &document{}
	for _, a := range axes {
		g := &growth{Name: a.name, Label: a.label}
		for i, n := range a.values {
			p := point{Value: n, Ours: float64(20 + i)}
			if a.peer {
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
	file := filepath.Join(t.TempDir(), "growth.png")
	if err := d.tell(&out, &options{png: file}); err != nil {
		t.Fatal(err)
	}
	for _, a := range axes {
		if !strings.Contains(out.String(), a.label) {
			t.Errorf("nothing is told of %s:\n%s", a.name, &out)
		}
	}
	if b, err := os.ReadFile(file); err != nil || !bytes.HasPrefix(b, []byte("\x89PNG")) {
		t.Errorf("no picture: %v", err)
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

func TestArgumentsThatMeanNothingAreRefused(t *testing.T) {
	for _, args := range [][]string{{"--only", "colour"}, {"--rounds", "0"}, {"--slice", "1ms"}, {"more"}} {
		var said bytes.Buffer
		if code := command.Program(run).Run(t.Context(), "growth", args, &said, &said); code != command.Usage || said.Len() == 0 {
			t.Errorf("%v: exit %d, %q", args, code, &said)
		}
	}
}
