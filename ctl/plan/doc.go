// Package plan computes in advance what a backoff will do: the waits, when each retry begins, the
// worst case, and when a recovery would be noticed.
//
// Candidates come from Parse, for strategies that a user names, or from FromRoute, for the settings
// of a route. Make turns them into a Plan, which has two forms: Text for people, Figure for a
// picture. The package opens no socket and reads no clock: the same candidates, options and seed
// return the same plan. It computes with package policy, like the proxy itself.
package plan
