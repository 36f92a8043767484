// Package settings has the configuration of the data path: Config and Route as they are given, and
// Settings, RouteState and UpstreamState, which are made of them and shared by the requests that run.
//
// A reload makes new Settings. They take over every upstream, hedge and rate limit whose
// configuration has not changed, so that connections, budgets and what was learnt outlive it.
// Requests keep the Settings that they began with.
package settings
