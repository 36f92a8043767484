// Package fleet lets processes act as one towards an upstream that they all
// call, by way of a Redis or Valkey server which they all reach.
//
// New and Run are all there is to call; the data path is told and asked through
// the interface Local and never waits for anything here: it works on its own
// state, which Run brings together with that of others in the background. While
// the engine is slow, gone, full or cut off, each process goes on with what it
// has, and joins again by itself; Stats and one line in the log say so.
//
// What is kept there are hashes and numbers, each key with an expiry. What is
// read there is believed only within the caps of this process's own settings.
// docs/decisions/0016-fleet.md tells the keys, the rules and their reasons.
package fleet
