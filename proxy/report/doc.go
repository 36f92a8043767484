// Package report tells observers, the log, the journal and traces how a request goes and how it ended:
// once per attempt, and exactly once per request.
package report
