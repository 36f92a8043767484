// Package rig is what the benchmarks of the whole program stand on: proxies as
// processes pinned to cores of their own, an upstream that does next to nothing,
// wrk to send requests, and what /proc tells of a process.
//
// Everything is on loopback. Linux only, as are the figures.
package oldrig
