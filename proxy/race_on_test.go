//go:build race

package proxy

// The race detector makes sync.Pool drop a quarter of what is put into it.
const allowedAllocs = 8
