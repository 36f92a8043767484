//go:build race || poison

package cost

// The race detector makes sync.Pool drop a quarter of what is put into it, and the check of
// buffers that go back allocates.
const allowedAllocs = 40
