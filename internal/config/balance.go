package config

import (
	"errors"
	"strings"

	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Balance is the setting for which endpoint gets a request.
type Balance struct{ text string }

const (
	leastRequests = "least-requests"
	roundRobin    = "round-robin"
	hashOf        = "hash:"
)

// UnmarshalText parses least-requests, round-robin or hash:Name.
func (b *Balance) UnmarshalText(text []byte) error {
	s := string(text)
	if name, isHash := strings.CutPrefix(s, hashOf); s != leastRequests && s != roundRobin && !(isHash && isToken(name)) {
		return errors.New("neither one of these words nor hash: with a header name")
	}
	b.text = s
	return nil
}

// MarshalText is the inverse of UnmarshalText.
func (b Balance) MarshalText() ([]byte, error) { return []byte(b.text), nil }

func (b Balance) proxy() proxy.Balance {
	name, isHash := strings.CutPrefix(b.text, hashOf)
	if !isHash {
		return proxy.Balance{RoundRobin: b.text == roundRobin}
	}
	return proxy.Balance{Header: name}
}

// healthCheck returns the health check of the route's endpoints.
func healthCheck(r *Route) upstream.HealthCheck {
	if !r.HealthPath.Set() {
		return upstream.HealthCheck{}
	}
	return upstream.HealthCheck{Path: r.HealthPath.Path(), Host: r.UpstreamHost.Name()}
}

// endpoints warns about settings for several endpoints where there is only one.
func (c *checker) endpoints() {
	r := c.r
	if !r.Upstream.Set() || !r.Upstream.target.OneAddress() {
		return
	}
	if c.own("HEALTH_PATH") && r.HealthPath.Set() && r.Breaker == "off" {
		c.warnf("HEALTH_PATH", r.HealthPath.String(), "has no effect: %s is one address, and with %s=off there are no probes", r.Upstream, c.name("BREAKER"))
	}
	if c.own("BALANCE") && r.Balance.text != leastRequests {
		c.warnf("BALANCE", r.Balance.text, "has no effect: %s is one address", r.Upstream)
	}
}
