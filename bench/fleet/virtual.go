package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/draw"
	"github.com/retryproxy/retryproxy/bench/internal/rig"
	"github.com/retryproxy/retryproxy/plot"
	"github.com/retryproxy/retryproxy/plot/picture"
	"github.com/retryproxy/retryproxy/sim"
)

// virtualSize is that of the picture in docs/explanation/fleet.md.
var virtualSize = picture.Size{Width: 900, Height: 900}

// sharings are what is compared.
var sharings = []struct {
	name  string
	share sim.Sharing
	delay time.Duration
}{
	{"alone", sim.ShareNothing, 0},
	{"pause", sim.ShareWithin, 0},
	{"shared", sim.ShareRateLimitPauses, 10 * time.Millisecond},
	{"ratelimit", sim.ShareRateLimit, 10 * time.Millisecond},
	{"rate limit, 100 ms away", sim.ShareRateLimit, 100 * time.Millisecond},
}

// asking is the sharing whose questions to the ledger are told.
const asking = 3

// point is one fleet and what came of it.
type point struct {
	Name      string        `json:"name"`
	Processes int           `json:"processes"`
	Delay     time.Duration `json:"delay_nanoseconds"`
	sim.FleetResult
}

// simulate plays fleets of several sizes and tells the table as Markdown.
func simulate(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("fleet simulate", flag.ContinueOnError)
	f.SetOutput(stderr)
	list := f.String("processes", "1,3,10,30,100,300,1000,3000,10000", "numbers of processes")
	grow := f.Bool("grow", false, "the rate limit and the clients grow with the processes, ten requests a second for each")
	length := f.Duration("for", 33*time.Second, "virtual time, the first 3 s of which are not counted")
	seed := f.Uint64("seed", 1, "the same seed gives the same fleets")
	png := f.String("png", "", "draw into this file")
	var sizes []int
	if err := rig.Parse(f, args, func() error {
		var c rig.Check
		for _, text := range rig.List(*list) {
			n, err := strconv.Atoi(text)
			c.That(err == nil && n >= 1 && n <= 100_000, "--processes: %q is not a number from 1 to 100000", text)
			sizes = append(sizes, n)
		}
		c.That(len(sizes) > 0 && len(sizes) <= 50, "--processes must be 1 to 50 numbers")
		return c.Err()
	}); err != nil {
		return err
	}
	points := playFleets(ctx, sizes, func(c *sim.Fleet) {
		c.Seed, c.Length = *seed, *length
		if *grow {
			c.Grow()
		}
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	tellFleets(stdout, sizes, points, *length)
	if *png != "" {
		return draw.PNG(*png, fleetsFigure(points), virtualSize)
	}
	return nil
}

// playFleets plays each sharing with each number of processes, two at a time.
func playFleets(ctx context.Context, sizes []int, change func(*sim.Fleet)) []point {
	points := make([]point, len(sharings)*len(sizes))
	room := make(chan struct{}, 2)
	var all sync.WaitGroup
	for i := range points {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			if ctx.Err() != nil {
				return
			}
			s := &sharings[i/len(sizes)]
			c := sim.DefaultFleet(sizes[i%len(sizes)])
			c.Share, c.Delay = s.share, s.delay
			change(&c)
			points[i] = point{s.name, c.Processes, c.Delay, sim.RunFleet(c)}
		})
	}
	all.Wait()
	return points
}

// tellFleets prints shares of 429s and good responses, by processes.
func tellFleets(w io.Writer, sizes []int, points []point, length time.Duration) {
	fmt.Fprintf(w, "Commit %s. In each cell: share of 429s at the upstream, good responses as a share of the rate limit.\n\n| processes |", rig.Commit())
	for _, s := range sharings {
		fmt.Fprintf(w, " %s |", s.name)
	}
	fmt.Fprint(w, " questions/s |\n| ---: |", strings.Repeat(" ---: |", len(sharings)+1), "\n")
	for n := range sizes {
		fmt.Fprintf(w, "| %d |", sizes[n])
		for i := range sharings {
			p := &points[i*len(sizes)+n]
			fmt.Fprintf(w, " %.2f %%, %.1f %% |", 100*p.LimitedShare, 100*p.GoodShare)
		}
		fmt.Fprintf(w, " %.0f |\n", float64(points[asking*len(sizes)+n].LeaseRequests)/length.Seconds())
	}
}

// fleetsFigure draws both shares against the number of processes.
func fleetsFigure(points []point) *plot.Figure {
	panel := func(title string, value func(p *point) float64) plot.Panel {
		panel := plot.Panel{Title: title, X: plot.Axis{Label: "processes", Unit: plot.Count, Log: true}, Y: plot.Axis{Label: "percent"}}
		for i := range points {
			p := &points[i]
			if n := len(panel.Series); n == 0 || panel.Series[n-1].Name != p.Name {
				panel.Series = append(panel.Series, plot.Series{Name: p.Name})
			}
			s := &panel.Series[len(panel.Series)-1]
			s.X, s.Y = append(s.X, float64(p.Processes)), append(s.Y, 100*value(p))
		}
		return panel
	}
	return &plot.Figure{Title: "One rate limit, twice as much asked for, in virtual time", Panels: []plot.Panel{
		panel("429s, of all that reaches the upstream", func(p *point) float64 { return p.LimitedShare }),
		panel("Good responses, of the rate limit", func(p *point) float64 { return p.GoodShare }),
	}}
}
