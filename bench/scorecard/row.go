package main

import (
	"fmt"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/overload"
	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// row is a case: servers, clients and what goes wrong.
type row struct {
	name, how string // how is for the reader of the table
	model     overload.Model
	servers   int      // endpoints; 0 means 1
	proxies   int      // processes of retryproxy that share the clients; 0 means 1
	virtual   bool     // a virtual address stands before the servers, and leads to the last one that was named
	settings  []string // of both arms of retryproxy

	crowd  *rig.Crowd // clients that try until they get a good response
	surge  *rig.Crowd // further ones during the fault
	users  []users    // clients whose requests are counted
	others []users    // clients whose requests are not

	fault span          // what is before it is peace
	end   time.Duration // of the clients
	steps []step        // in order

	goals []goal
	light int     // weight, if the row disturbs others little; 0: it is played alone
	slack float64 // share of the requests by which losses with and without breaker may differ by chance
}

// span is a time from the begin of the clients.
type span struct{ from, to time.Duration }

// step is something that happens to servers.
type step struct {
	at time.Duration
	do func(s *stage) error
}

// weight returns how much of the machine the row takes.
func (r *row) weight() int {
	if r.light > 0 {
		return r.light
	}
	return mostWeight
}

// length returns how long the row takes at most.
func (r *row) length() time.Duration {
	most := r.end
	for _, u := range r.users {
		most = max(most, u.last()+time.Duration(max(u.tries, 1))*(u.patience+again))
	}
	return most + time.Second
}

// measures is what an arm did.
type measures struct {
	During   float64  `json:"good_during"`                // share of the requests that came then
	After    *float64 `json:"good_after"`                 // null: nobody came
	Again    *float64 `json:"seconds_to_95_percent_good"` // after the fault; null: never, or nothing to compare with
	Errors   *float64 `json:"seconds_to_errors_under_5_percent"`
	Timed    bool     `json:"timed"`          // both are meant
	Peak     int      `json:"peak_in_flight"` // at all servers, from the fault on
	Attempts float64  `json:"attempts_per_request"`
	Requests int      `json:"requests"`
	Lost     *int     `json:"lost"` // null: its clients try until they succeed

	Counts rig.Counts   `json:"counts"`
	Second []rig.Counts `json:"seconds,omitempty"`
}

// goal is a condition for the arm on. off is nil if that arm was not played.
type goal struct {
	text string
	met  func(on, off *measures) bool
}

// atMost is a goal for a time.
func atMost(what string, most float64, of func(m *measures) *float64) goal {
	return goal{fmt.Sprintf("%s <= %.1f s", what, most), func(m, _ *measures) bool {
		got := of(m)
		return got != nil && *got <= most
	}}
}

func again95(most float64) goal {
	return atMost("95 % good", most, func(m *measures) *float64 { return m.Again })
}

func errorsOver(most float64) goal {
	return atMost("errors over", most, func(m *measures) *float64 { return m.Errors })
}

func peak(most int) goal {
	return goal{fmt.Sprintf("peak <= %d", most), func(m, _ *measures) bool { return m.Peak <= most }}
}

// lost is a goal for the number of requests lost.
func lost(most int) goal {
	return goal{fmt.Sprintf("lost <= %d", most), func(m, _ *measures) bool { return m.Lost != nil && *m.Lost <= most }}
}

// during and after are goals for shares.
func during(least float64) goal {
	return goal{fmt.Sprintf("good during >= %.0f %%", 100*least), func(m, _ *measures) bool { return m.During >= least }}
}

func after(least float64) goal {
	return goal{fmt.Sprintf("good after >= %.0f %%", 100*least), func(m, _ *measures) bool { return m.After != nil && *m.After >= least }}
}

// storm are the goals of a storm.
func storm(good, errs float64, most int) []goal {
	return []goal{again95(good), errorsOver(errs), peak(most)}
}

// asOff are goals to be as good as with breaker and limit off.
func asOff() []goal {
	const share, seconds = 0.02, 1.0
	return []goal{
		{"good after as with it off", func(on, off *measures) bool {
			return off == nil || off.After == nil || on.After != nil && *on.After >= *off.After-share
		}},
		{"95 % good as soon as with it off", func(on, off *measures) bool {
			return off == nil || off.Again == nil || on.Again != nil && *on.Again <= *off.Again+seconds
		}},
	}
}

// harmless is the goal of every row: the breaker does no harm.
func (r *row) harmless() goal {
	return goal{"no more lost than with it off", func(on, off *measures) bool {
		if off == nil {
			return true
		}
		if on.Lost != nil && off.Lost != nil {
			return float64(*on.Lost) <= float64(*off.Lost)+r.slack*float64(on.Requests)
		}
		const chance = 0.02 // of clients that try until they succeed, as a share of their tries
		return off.After == nil || on.After != nil && *on.After >= *off.After-chance
	}}
}
