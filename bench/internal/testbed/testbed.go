// Package testbed is what bench/llm, a module of its own, uses of [rig].
package testbed

import "github.com/retryproxy/retryproxy/bench/internal/rig"

// What it uses, under the names that it has there.
type (
	Bed  = rig.Bed
	Spec = rig.Spec
)
