// Package advise proposes settings based on what a running retryproxy has counted.
//
// Parse reads a Sample from a response of /metrics; ParseSettings reads the current settings from
// /config. Advise compares two Samples, or takes one alone, and returns a Report, which has two
// forms: Text for people, and JSON by its tags. The package opens no socket and reads no clock: the
// same samples return the same advice. docs/decisions/0008-observe-and-advise.md explains the
// rules.
package advise

import (
	"fmt"
	"slices"
	"strings"
)

// Input is the data for the advice.
type Input struct {
	Before   *Sample // nil: counts since the process began
	After    *Sample
	Seconds  float64            // between the samples, or since the process began; 0: unknown
	Settings map[string]InForce // by route; nil if they could not be read
}

// Report is the advice for all routes.
type Report struct {
	Seconds float64  `json:"seconds"` // length of the observation; 0: unknown
	Since   string   `json:"since"`   // "start" or "window"
	Routes  []Route  `json:"routes"`  // default first, then by name
	Notes   []string `json:"notes,omitempty"`
}

// Route is the advice for one route.
type Route struct {
	Name     string `json:"name"`
	DryRun   bool   `json:"dry_run"`
	Requests int64  `json:"requests"`
	Attempts int64  `json:"attempts"`
	Failed   int64  `json:"failed_attempts"`

	// Enough means that there was enough traffic for proposals. Otherwise Notes says how much is
	// missing, and Proposals is empty.
	Enough    bool       `json:"enough_traffic"`
	Retries   Retries    `json:"retries"`
	Proposals []Proposal `json:"proposals,omitempty"`
	Notes     []string   `json:"notes,omitempty"`
}

// Retries compares what retries achieved with what they cost. For a route in dry run it is an
// estimate, and Recovered is the maximum.
type Retries struct {
	Made       int64   `json:"made"`                         // without retries of closed idle connections; for a route in dry run, those that would be made
	Recovered  int64   `json:"recovered"`                    // requests
	GaveUp     int64   `json:"gave_up"`                      // requests that failed, with or without retries
	Load       float64 `json:"load_added"`                   // in relation to the attempts without retries
	LoadAtMost float64 `json:"load_added_at_most,omitempty"` // for a route in dry run: if all retries fail too, within the budget
}

// Proposal is a proposed value for a setting.
type Proposal struct {
	Setting  string `json:"setting"` // the variable; that of the route unless it is the default one
	Now      string `json:"now,omitempty"`
	Proposed string `json:"proposed"`
	Why      string `json:"why"`
}

// Same reports whether the setting can stay as it is.
func (p *Proposal) Same() bool { return p.Now == p.Proposed }

// Advise returns the report. The error is ErrRestarted if the process was restarted between the
// samples.
func Advise(in Input) (*Report, error) {
	counted, err := in.After.since(in.Before)
	if err != nil {
		return nil, err
	}
	r := &Report{Seconds: in.Seconds, Since: "window"}
	if in.Before == nil {
		r.Since = "start"
	}
	if in.Settings == nil {
		r.Notes = append(r.Notes, "the settings in force are shown to this machine only and could not be read; the defaults are assumed")
	}
	for name, c := range counted {
		now, known := in.Settings[name]
		if !known {
			now = defaults()
			now.DryRun = sum(c.Would, "") > 0
		}
		r.Routes = append(r.Routes, adviseRoute(name, c, now, in.Seconds))
	}
	slices.SortFunc(r.Routes, func(a, b Route) int {
		if (a.Name == "default") != (b.Name == "default") {
			if a.Name == "default" {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return r, nil
}

func adviseRoute(name string, c *Counts, now InForce, seconds float64) Route {
	r := Route{
		Name: name, Requests: int64(c.Requests()), Attempts: int64(c.Attempts), Failed: int64(c.Attempts - c.Good),
		Retries: retriesOf(c, now),
	}
	if now.DryRun {
		r.DryRun = true
	}
	l := latencyOf(c)
	if l.answers < leastAnswers {
		r.Notes = append(r.Notes, fmt.Sprintf("too little traffic for advice: %.0f successful responses; at least %d are needed", l.answers, leastAnswers))
		return r
	}
	r.Enough = true
	a := adviser{c: c, now: now, latency: l, seconds: seconds, route: &r}
	a.advise()
	return r
}

// notFailed are the outcomes of requests that did not fail, or that their clients ended.
var notFailed = []string{"success", "recovered", "upgraded", "client_gone", "request_broken", "request_timeout", "refused"}

// retriesOf returns the comparison for real retries, or for those of a dry run.
func retriesOf(c *Counts, now InForce) Retries {
	made := sum(c.Retries, "") - c.Retries["idle_close"]
	r := Retries{Made: int64(made), Recovered: int64(c.Outcomes["recovered"]), GaveUp: int64(c.Requests())}
	for _, o := range notFailed {
		r.GaveUp -= int64(c.Outcomes[o])
	}
	if first := c.Attempts - made - c.Hedges; first > 0 {
		r.Load = made / first
	}
	if !now.DryRun {
		return r
	}
	would := sum(c.Would, "")
	r.Made, r.Recovered = int64(would), int64(c.Outcomes["gave_up_dry_run"])
	if c.Attempts > 0 {
		r.Load = would / c.Attempts
		r.LoadAtMost = r.Load * float64(max(1, now.MaxRetries))
	}
	return r
}
