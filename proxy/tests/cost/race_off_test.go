//go:build !race && !poison

package cost

const allowedAllocs = 0.05
