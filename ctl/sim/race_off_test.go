//go:build !race

package sim

const usualSeeds = 2
