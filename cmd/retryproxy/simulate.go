package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/simulate"
	"github.com/retryproxy/retryproxy/internal/terminal"
	"github.com/retryproxy/retryproxy/internal/text"
	"github.com/retryproxy/retryproxy/plot"
)

var simulateCommand = command{
	name:    "simulate",
	args:    "[--through WAY[,WAY...]] [--route NAME] [--backoff NAME[,NAME...]] [--clients 1000] [--json]",
	summary: "simulate an outage in virtual time: whether and when clients are served again, and at what load",
	details: `Simulates a server that slows down under many requests, clients that retry, an
outage, and what stands between them, and prints every combination in one diagram.
Retries, retry budget, circuit breaker and concurrency limit are those of the
proxy's own code. It sends nothing: ten minutes of 100 000 clients take half a minute.

--through takes direct (nothing between), retries (a proxy that only retries), budget
(with a retry budget too), haproxy (a fixed number of connections and a queue) and
retryproxy. --route adds a route of the settings.

--backoff simulates every way that retries once with each of these strategies,
written as for plan. --client-backoff sets what clients do after a failure: naive
(again after 100 ms), once (give up), or a strategy. A strategy that grows from the
wait before (normal, decorrelated) may end with :from=pause: then the first wait
grows from the client's pause before the request.

The server and the number of proxies grow with --clients unless they are given. The
same --seed gives the same outage. --json prints the plot's numbers instead, for
retryproxy-plot, which draws a picture of them.`,
	run: runSimulate,
}

// simulateFlags are the flags of simulate.
type simulateFlags struct {
	wish   simulate.Wish
	routes list
	view   simulate.View
	json   bool
}

func parseSimulate(c *call) (*simulateFlags, error) {
	s := simulateFlags{wish: simulate.Default()}
	w := &s.wish
	var through, clients list
	var show string
	f := c.flags()
	f.Var(&through, "through", "what is between clients and server, `WAY[,WAY...]`: direct, retries, budget, haproxy, retryproxy; default direct,haproxy,retryproxy")
	f.Var(&s.routes, "route", "also simulate these routes of the settings, `NAME[,NAME...]`")
	f.Var((*list)(&w.Backoffs), "backoff", "how long proxies wait between retries, `NAME[:option=value...][,NAME...]`; may be repeated")
	f.Var(&clients, "client-backoff", "what clients do after a failure, `MANNER[,MANNER...]`: naive, once or a strategy; default naive")
	f.StringVar(&w.Outage, "outage", w.Outage, "what happens to the server: "+strings.Join(simulate.Outages(), ", "))
	s.worldFlags(f)
	f.Uint64Var(&w.Seed, "seed", w.Seed, "the same seed gives the same result")
	f.StringVar(&show, "show", "", "good, errors, load or all; default good,load for text, all for JSON")
	f.BoolVar(&s.json, "json", false, "print the plot's numbers as JSON, for retryproxy-plot")
	if _, err := c.parse(f, 0); err != nil {
		return nil, err
	}
	if clients != nil {
		w.ClientBackoffs = clients
	}
	if through != nil {
		w.Through = strings.Split(through.String(), ",")
	} else if s.routes != nil {
		w.Through = []string{"direct"}
	}
	if w.Length == 0 {
		w.Length = w.Peace + w.Down + time.Minute
	}
	if show == "" {
		show = map[bool]string{true: "all", false: "good,load"}[s.json]
	}
	var err error
	if s.view, err = parseView(show); err != nil {
		return nil, c.usage(f, err)
	}
	return &s, nil
}

// worldFlags adds the flags of clients, server and outage.
func (s *simulateFlags) worldFlags(f *flag.FlagSet) {
	w := &s.wish
	w.Length = 0
	f.DurationVar(&w.Peace, "peace", w.Peace, "time before the outage")
	f.DurationVar(&w.Down, "down", w.Down, "length of the outage")
	f.DurationVar(&w.Length, "length", 0, "virtual time to simulate; default until a minute after the outage")
	f.DurationVar(&w.Every, "every", w.Every, "mean of the exponential pause of a client after a good response")
	f.DurationVar(&w.Patience, "patience", w.Patience, "time after which a client gives up a try")
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
			return v, fmt.Errorf("--show: %q is none of good, errors, load, all", name)
		}
	}
	return v, nil
}

func runSimulate(_ context.Context, c *call) error {
	s, err := parseSimulate(c)
	if err != nil {
		return err
	}
	if err := s.addRoutes(c); err != nil {
		return err
	}
	runs, err := s.wish.Runs()
	if err != nil {
		return c.wrong(err)
	}
	done := simulate.Play(&s.wish, runs)
	if s.json {
		return text.JSON(c.stdout, plot.Document{Figure: done.Figure(s.view)})
	}
	done.Text(c.stdout, s.view, terminal.ScreenOf(c.stdout, c.getenv))
	return nil
}

// addRoutes adds the named routes, as proxies with their settings.
func (s *simulateFlags) addRoutes(c *call) error {
	routes, err := c.routes(s.routes)
	for _, r := range routes {
		p, err := simulate.FromRoute(r)
		if err != nil {
			return err
		}
		s.wish.Own = append(s.wish.Own, simulate.Own{Label: "route " + r.Name, Proxy: p})
	}
	return err
}

// routes returns the routes of the settings that a flag names, or none if it names none.
func (c *call) routes(named list) ([]*config.Route, error) {
	if len(named) == 0 {
		return nil, nil
	}
	s, err := c.settings()
	if err != nil {
		return nil, err
	}
	var routes []*config.Route
	for name := range strings.SplitSeq(named.String(), ",") {
		r := s.Find(strings.TrimSpace(name))
		if r == nil {
			return nil, c.wrong(fmt.Errorf("no route %q; RETRYPROXY_ROUTES lists the routes", name))
		}
		if slices.Contains(routes, r) {
			return nil, c.wrong(errors.New("--route: " + r.Name + " is given twice"))
		}
		routes = append(routes, r)
	}
	return routes, nil
}
