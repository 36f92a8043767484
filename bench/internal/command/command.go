// Package command is what bench/llm, a module of its own, uses of [rig].
package command

import "github.com/retryproxy/retryproxy/bench/internal/rig"

// What it uses, under the names that it has there.
const (
	OK     = rig.OK
	Failed = rig.Failed
	Usage  = rig.Usage
)

type (
	Program = rig.Program
	Check   = rig.Check
)

var (
	ErrFound = rig.ErrFound
	Main     = rig.Main
	Parse    = rig.Parse
	List     = rig.List
)
