//go:build linux

package main

import "time"

// Bounds of each fault. A shorter one would be over before ATTEMPT_TIMEOUT.
const (
	shortestFault = 1500 * time.Millisecond
	longestFault  = time.Minute
)

// fault is one thing that goes wrong. begin and end are called twice.
type fault struct {
	name     string
	how      string // it is made
	settings []string
	body     int                   // bytes of the requests that have a body
	prepare  func(st *stage) error // nil: nothing
	begin    func(st *stage) error //
	end      func(st *stage) error // as it was
	until    func(st *stage) bool  // it has lasted long enough; nil: --for
	felt     func(st *stage) (felt, error)
	expects  expects
}

// expects is what may be of a fault beside answers.
type expects struct {
	Fail       bool // also requests that may be retried: there is nothing to serve them with
	OthersFail bool // requests that may not be retried
	Cut        int  // at most so many answers that are visibly cut, as the upstream cut them after their head
}

// felt is how a fault showed, and how often: never means that it was none.
type felt struct {
	Times int64  `json:"times"`
	What  string `json:"what"`
}

// clients are those that call throughout.
func (f *fault) clients() (all []manner) {
	for _, m := range manners {
		m.body = f.body
		all = append(all, m)
	}
	return all
}

// faults are all, in the order of the table; each may be played once.
func faults() []fault {
	all := append(upstreamFaults(), answerFaults()...)
	all = append(all, dnsSilent(), dnsRefuses(), certificateExpired(), descriptorsFromTheStart(), descriptorsLowered())
	all = append(all, memoryOfGo(), memoryOfCgroup(), logsFull(), clockStepped())
	return append(all, networkFaults()...)
}
