//go:build linux

// Command faults runs a retryproxy between a few clients and an upstream, all of
// them processes or connections of their own, makes one fault at a time and tells
// what clients saw of it: requests that failed, requests that were accepted and never
// answered, and how long after the end of the fault one was served again. Then it
// makes the same fault once more and ends the proxy by SIGTERM in its middle.
//
// Every response says which request it belongs to, and the upstream checks every
// body, so that nothing can be changed unseen. Each fault has its expectation
// beside it; one that is missed, or a fault that nobody felt, is exit code 1.
//
// Faults of the network happen in network namespaces that end with their row.
// Linux only. What the machine cannot do is a row that says so.
package main
