// Package fleet lets processes that use the same upstream share rate limits, retry budgets
// and rate-limit pauses, by means of a Redis or Valkey server.
//
// Call New and Run. The data path uses the interface Local and never waits for this
// package: it works on its own state, which Run synchronises with the other processes in
// the background. While the engine is slow, down, full or unreachable, each process
// continues with its own state, and rejoins by itself. Stats and one log line show it.
//
// The engine stores hashes and numbers, each key with an expiry. Values read from it are
// only used within the limits of this process's own settings. docs/decisions/0016-fleet.md
// explains the keys, the rules and their reasons.
package fleet
