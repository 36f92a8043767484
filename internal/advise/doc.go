// Package advise proposes settings based on what a running retryproxy has counted.
//
// Parse reads a Sample from a response of /metrics; ParseSettings reads the current settings from
// /config. Advise compares two Samples, or takes one alone, and returns a Report, which has two
// forms: Text for people, and JSON by its tags. The package opens no socket and reads no clock: the
// same samples return the same advice. docs/decisions/0008-observe-and-advise.md explains the
// rules.
package advise
