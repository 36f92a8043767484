//go:build race

package storm

// A storm has one goroutine, and the race detector makes it ten times slower.
const usualSeeds = 1
