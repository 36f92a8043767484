// Package plan works out what a backoff will do before anybody has to wait
// for it: the waits, when each retry begins, the worst that can come of it, and
// when a recovery would be noticed.
//
// Candidates come from Parse, for strategies that a user names, or are filled
// in from a route's settings. Make turns them into a Plan, which has three
// forms: Text for people, JSON for programs, Figure for a plot. Nothing here
// opens a socket, reads a clock or keeps randomness of its own: the same
// candidates, options and seed give the same plan. The arithmetic is that of
// package policy, which the proxy itself waits by.
package plan
