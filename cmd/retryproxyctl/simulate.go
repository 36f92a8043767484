package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/retryproxy/retryproxy/ctl/plot"
	"github.com/retryproxy/retryproxy/ctl/simulate"
	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/terminal"
	"github.com/retryproxy/retryproxy/internal/text"
	"github.com/retryproxy/retryproxy/policy/backoff"
)

// simulateFlags are the flags of simulate.
type simulateFlags struct {
	wish             simulate.Wish
	routes           []string
	through, clients []string
	show             string
	json             bool
}

func simulateCommand(o *outside) *cobra.Command {
	s := simulateFlags{wish: simulate.Default()}
	c := &cobra.Command{
		Use:   "simulate [--through WAY[,WAY...]] [--route NAME] [--backoff NAME[,NAME...]] [--clients 1000] [--json]",
		Short: "simulate an outage in virtual time: whether and when clients are served again, and at what load",
		Long: `Simulates a server that slows down under many requests, clients that retry, an
outage, and what stands between them, and prints every combination in one diagram.
Retries, retry budget, circuit breaker and concurrency limit are those of the
proxy's own code. It sends nothing: ten minutes of 100 000 clients take half a minute.

--through takes direct (nothing between), retries (a proxy that only retries), budget
(with a retry budget too), haproxy (a fixed number of connections and a queue) and
retryproxy. --route adds a route of the settings.

--backoff simulates every way that retries once with each of these strategies,
written as for plan. --client-backoff sets what clients do after a failure: naive
(send again after 100 ms), once (give up), or a strategy. A strategy whose waits grow
from the previous one (normal, decorrelated) may end with :from=pause: then the first
wait grows from the client's pause before the request.

The server and the number of proxies grow with --clients unless they are given. The
same --seed gives the same outage. --json prints the plot's numbers instead, from
which plot draws a picture.`,
		RunE: func(c *cobra.Command, _ []string) error { return s.run(o, c) },
	}
	w, f := &s.wish, c.Flags()
	f.StringArrayVar(&s.through, "through", nil, "what is between clients and server, `WAY[,WAY...]`: direct, retries, budget, haproxy, retryproxy; default direct,haproxy,retryproxy")
	f.StringArrayVar(&s.routes, "route", nil, "also simulate these routes of the settings, `NAME[,NAME...]`")
	f.StringArrayVar(&w.Backoffs, "backoff", nil, "how long proxies wait between retries, `NAME[:option=value...][,NAME...]`; may be repeated")
	f.StringArrayVar(&s.clients, "client-backoff", nil, "what clients do after a failure, `MANNER[,MANNER...]`: naive, once or a strategy; default naive")
	f.StringVar(&w.Outage, "outage", w.Outage, "what happens to the server: "+strings.Join(simulate.Outages(), ", "))
	s.worldFlags(f)
	f.Uint64Var(&w.Seed, "seed", w.Seed, "the same seed gives the same result")
	f.StringVar(&s.show, "show", "", "good, errors, load or all; default good,load for text, all for JSON")
	f.BoolVar(&s.json, "json", false, "print the plot's numbers as JSON, for plot")
	o.completeRoutes(c)
	complete(c, "through", "direct", "retries", "budget", "haproxy", "retryproxy")
	complete(c, "backoff", backoff.Strategies()...)
	complete(c, "client-backoff", append([]string{"naive", "once"}, backoff.Strategies()...)...)
	complete(c, "outage", simulate.Outages()...)
	complete(c, "show", "good", "errors", "load", "all")
	return c
}

// fill replaces what was not given by its default, and returns what the plot shows.
func (s *simulateFlags) fill() (simulate.View, error) {
	w := &s.wish
	if s.clients != nil {
		w.ClientBackoffs = s.clients
	}
	if s.through != nil {
		w.Through = strings.Split(strings.Join(s.through, ","), ",")
	} else if s.routes != nil {
		w.Through = []string{"direct"}
	}
	if w.Length == 0 {
		w.Length = w.Peace + w.Down + time.Minute
	}
	if s.show == "" {
		s.show = map[bool]string{true: "all", false: "good,load"}[s.json]
	}
	return parseView(s.show)
}

// worldFlags adds the flags of clients, server and outage.
func (s *simulateFlags) worldFlags(f *pflag.FlagSet) {
	w := &s.wish
	w.Length = 0
	f.DurationVar(&w.Peace, "peace", w.Peace, "time before the outage")
	f.DurationVar(&w.Down, "down", w.Down, "length of the outage")
	f.DurationVar(&w.Length, "length", 0, "virtual time to simulate; default until a minute after the outage")
	f.DurationVar(&w.Every, "every", w.Every, "mean of the exponential pause of a client after a good response")
	f.DurationVar(&w.Patience, "patience", w.Patience, "time after which a client gives up a request")
	f.DurationVar(&w.Base, "base", w.Base, "server: response time with few requests in progress")
	f.IntVar(&w.Clients, "clients", w.Clients, "clients, each with one request at a time")
	f.IntVar(&w.Free, "free", 0, "server: requests in progress that do not slow it down, and connections of haproxy; 0 means 30 per thousand clients")
	f.IntVar(&w.AcceptQueue, "accept-queue", 0, "server: connections that its kernel queues while it is stopped; further ones are dropped; 0 means 4096 per thousand clients")
	f.IntVar(&w.Proxies, "proxies", 0, "processes that share the clients; 0 means one per thousand")
}

// parseView returns what the plot shows.
func parseView(show string) (simulate.View, error) {
	var v simulate.View
	for name := range strings.SplitSeq(show, ",") {
		switch name {
		case "good":
			v.Good = true
		case "errors":
			v.Errors = true
		case "load":
			v.Load = true
		case "all":
			v = simulate.View{Good: true, Errors: true, Load: true}
		default:
			return v, fmt.Errorf("--show: %q is not good, errors, load or all", name)
		}
	}
	return v, nil
}

func (s *simulateFlags) run(o *outside, c *cobra.Command) error {
	view, err := s.fill()
	if err != nil {
		return wrong(c, err)
	}
	if err := s.addRoutes(o, c); err != nil {
		return err
	}
	runs, err := s.wish.Runs()
	if err != nil {
		return wrong(c, err)
	}
	done := simulate.Play(&s.wish, runs)
	if s.json {
		return text.JSON(o.stdout, plot.Document{Figure: done.Figure(view)})
	}
	done.Text(o.stdout, view, terminal.ScreenOf(o.stdout, config.Getenv(o.env)))
	return nil
}

// addRoutes adds the named routes, as proxies with their settings.
func (s *simulateFlags) addRoutes(o *outside, c *cobra.Command) error {
	routes, err := o.routes(c, s.routes)
	for _, r := range routes {
		p, err := simulate.FromRoute(r)
		if err != nil {
			return err
		}
		s.wish.Own = append(s.wish.Own, simulate.Own{Label: "route " + r.Name, Proxy: p})
	}
	return err
}
