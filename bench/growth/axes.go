package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// axis is something that may grow.
type axis struct {
	name   string
	label  string
	values []int
	peer   bool // HAProxy does the same work
	load   func(n int) *rig.Load
	env    func(n int, dir string) ([]string, error) // settings of retryproxy; nil: the defaults
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

var axes = []axis{
	{name: "connections", label: "connections of clients", values: []int{1, 4, 16, 64, 256, 1000, 4000, rig.AtMost(10_000)}, peer: true,
		load: func(n int) *rig.Load { return get("/small", n) }},
	{name: "routes", label: "routes", values: []int{1, 10, 100, 1000, 10_000},
		load: func(n int) *rig.Load { return get(fmt.Sprintf("/small/%d/orders", n-1), 64) },
		env:  manyRoutes},
	{name: "response", label: "bytes of a response's body", values: []int{0, kib, 16 * kib, 256 * kib, mib, 16 * mib, 64 * mib}, peer: true,
		load: func(n int) *rig.Load { return get(fmt.Sprintf("/bytes/%d", n), forBody(n)) }},
	{name: "request", label: "bytes of a request's body", values: []int{0, kib, 16 * kib, 256 * kib, mib, 16 * mib, 64 * mib}, peer: true,
		load: func(n int) *rig.Load {
			return &rig.Load{URL: "/sink", Connections: forBody(n), Method: "PUT", BodyBytes: n}
		}},
	{name: "failing", label: "percent of answers that are 503", values: []int{0, 1, 5, 10, 20, 30, 50}, peer: true,
		load: func(n int) *rig.Load { return get(fmt.Sprintf("/fail/%d", n), 512) }},
	{name: "fields", label: "fields of a request besides Host", values: []int{0, 10, 20, 40, 80}, peer: true,
		load: func(n int) *rig.Load { l := get("/small", 64); l.Fields = n; return l }},
}

func get(path string, connections int) *rig.Load {
	return &rig.Load{URL: path, Connections: connections}
}

// forBody is how many connections keep the proxy busy without the bodies
// filling the memory of the load.
func forBody(bytes int) int {
	switch {
	case bytes <= 16*kib:
		return 64
	case bytes <= mib:
		return 16
	}
	return 4
}

// manyRoutes writes an environment file with n routes by path, since an
// environment of 10 000 would be too long for the kernel.
func manyRoutes(n int, dir string) ([]string, error) {
	var names []string
	var b strings.Builder
	for i := range n {
		name := fmt.Sprintf("r%d", i)
		names = append(names, name)
		fmt.Fprintf(&b, "RETRYPROXY_ROUTE_%s_PATH=/small/%d/*\n", strings.ToUpper(name), i)
	}
	fmt.Fprintf(&b, "RETRYPROXY_ROUTES=%s\n", strings.Join(names, ","))
	file := filepath.Join(dir, "routes.env")
	return []string{"RETRYPROXY_CONFIG_FILE=" + file}, os.WriteFile(file, []byte(b.String()), 0o600)
}
