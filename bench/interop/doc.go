// Package interop holds retryproxy to what others wrote: the gRPC project's
// interoperability client and server, h2spec, h2load, a WebSocket library and
// git, each through the real binary. It has a module of its own, so that none of
// them is a dependency of the proxy. `make interop` runs it; h2load
// (nghttp2-client) and git have to be installed.
package interop
