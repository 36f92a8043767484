// Package proxytest runs a proxy between the peers of package peers: on loopback by Start, or between in-memory connections
// in fake time by InMemory. When a test ends, it checks that the proxy gave back all that it held.
package proxytest
