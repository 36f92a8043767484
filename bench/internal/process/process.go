// Package process is what bench/llm, a module of its own, uses of [rig].
package process

import "github.com/retryproxy/retryproxy/bench/internal/rig"

// What it uses, under the names that it has there.
var (
	OwnAddresses = rig.OwnAddresses
	Start        = rig.Start
)
