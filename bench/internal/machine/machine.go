// Package machine is what bench/llm, a module of its own, uses of [rig].
package machine

import "github.com/retryproxy/retryproxy/bench/internal/rig"

// What it uses, under the names that it has there.
var (
	Commit   = rig.Commit
	Describe = rig.Describe
	Version  = rig.Version
)
