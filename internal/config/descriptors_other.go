//go:build !unix

package config

// maxConnections returns 0 for "auto": there is no descriptor limit here.
func maxConnections(c AutoCount) int { return c.Value() }
