package oldrig

import "syscall"

// spare are descriptors that a proxy needs beside those for connections; it
// keeps 64 back itself.
const spare = 200

// AtMost is n, or the most requests that can stand at once in a proxy that has this
// process's descriptor limit and needs two for each.
func AtMost(n int) int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return n
	}
	return min(n, int(min(limit.Cur, 1<<20)-spare)/2)
}
