// Package settings has the configuration of the data path. Config and Route are its input.
// Settings, RouteState and UpstreamState are made from them and shared by the running requests.
//
// A reload makes new Settings. They take over every upstream, hedge and rate limit whose
// configuration has not changed, so that connections, budgets and learnt values survive it.
// Requests keep the Settings with which they began.
package settings
