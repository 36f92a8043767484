// Package advise proposes settings from what a running retryproxy has
// counted.
//
// Parse makes a Sample of a response of /metrics; ParseSettings reads what is in
// force from /config. Advise compares two Samples, or one with nothing, and
// gives a Report, which has two forms: Text for people, and JSON by its tags.
// Nothing here opens a socket or reads a clock: the same samples give the same
// advice. Rules and reasons are in docs/decisions/0008-observe-and-advise.md.
package advise
