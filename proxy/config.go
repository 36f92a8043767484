package proxy

import "github.com/retryproxy/retryproxy/proxy/settings"

// The configuration, and the hooks for its results. Package settings documents their meaning.
type (
	Config         = settings.Config
	Route          = settings.Route
	Fallback       = settings.Fallback
	Balance        = settings.Balance
	RateLimitPause = settings.RateLimitPause

	Observer = settings.Observer
	Journal  = settings.Journal
	Ended    = settings.Ended
	Step     = settings.Step
)
