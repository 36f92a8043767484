package plan

import "github.com/retryproxy/retryproxy/internal/config"

// FromRoute returns the candidate for the settings of a route.
func FromRoute(r *config.Route) (Candidate, error) {
	p, err := r.Policy()
	if err != nil {
		return Candidate{}, err
	}
	c := Candidate{
		Label: "route " + r.Name, Route: r.Name, Strategy: r.Backoff, Backoff: p.Backoff, Retries: p.MaxRetries,
		RequestTimeout: r.RequestTimeout, AttemptTimeout: r.AttemptTimeout.Value(),
	}
	if b, has := r.Budget(); has {
		c.Budget = &b
	}
	return c, nil
}
