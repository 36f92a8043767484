//go:build !unix

package assemble

import "github.com/retryproxy/retryproxy/cmd/retryproxy/internal/settings"

// maxConnections has no descriptor limit to take "auto" from.
func maxConnections(c settings.AutoCount) int { return c.Value() }
