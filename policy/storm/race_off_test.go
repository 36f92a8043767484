//go:build !race

package storm

const usualSeeds = 2
