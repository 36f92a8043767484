// Package peers has what a proxy under test stands between: upstreams that do with each connection what the test says,
// byte by byte, clients that write and read bytes, frames or gRPC calls, and an observer that remembers. It begins with
// StartUpstream, Script and Serve. It knows nothing of package proxy, so that the tests within that package can use it.
package peers
