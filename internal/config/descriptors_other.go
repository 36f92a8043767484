//go:build !unix

package config

// maxConnections returns 0, no limit: there is no descriptor limit here.
func maxConnections() int { return 0 }
