//go:build race

package sim

// A storm has one goroutine, and the race detector makes it ten times slower.
const usualSeeds = 1
