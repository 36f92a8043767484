//go:build !race && !poison

package proxy

const allowedAllocs = 0.05
