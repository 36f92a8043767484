//go:build race || poison

package cost

// The race detector makes sync.Pool drop a quarter of what is put into it, and the check of
// buffers that go back allocates some four times for each: 78 for a GET with a retry. The limit
// finds what grows with the request; make allocations counts exactly.
const allowedAllocs = 120
