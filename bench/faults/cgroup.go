//go:build linux

package main

import (
	"fmt"
	"os"

	"github.com/retryproxy/retryproxy/bench/internal/cgroup"
)

// memoryOfCgroup is felt where the process had more than half of the limit: it knows the
// limit and collects its garbage in time. Were it killed for it, clients would tell.
func memoryOfCgroup() fault {
	const limit = 20 << 20
	f := crowded("memory limit", "a cgroup of 20 MiB, bodies for retries at most 12 MiB (RETRYPROXY_RETRY_BUFFER_TOTAL_BYTES); 64 more clients at once, each with PUTs of 512 KiB", uploads())
	f.settings = []string{"RETRYPROXY_RETRY_BUFFER_TOTAL_BYTES=12MiB"}
	var g *cgroup.Group
	f.prepare = func(st *stage) (err error) {
		if g, err = cgroup.New(fmt.Sprintf("faults-%d", os.Getpid()), limit); err != nil {
			return impossible{err.Error()}
		}
		st.later(g.Remove)
		st.proxyBy = g.By()
		return nil
	}
	f.felt = func(*stage) (felt, error) {
		n, err := g.Peak()
		if n < limit/2 {
			n = 0
		}
		return felt{n >> 10, fmt.Sprintf("of its %d KiB in use at the peak (cgroup version %d)", limit>>10, g.Version)}, err
	}
	return f
}
