//go:build !race

package proxy

const allowedAllocs = 0.05
