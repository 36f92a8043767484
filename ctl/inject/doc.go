// Package inject adds retryproxy sidecars to Kubernetes Pod templates and routes traffic through
// them.
//
// Stream does it for YAML files, Pod for one object that the API server sends to an admission
// webhook. Both change a Pod in the same way:
//
//   - inbound: a container retryproxy-in listens on a port of its own and forwards requests to the
//     application's port on loopback. A named port keeps its name and gets the sidecar's number, so that
//     every Service that targets the name leads to the sidecar. A Service that targets the number is
//     changed if it is in the same stream. If neither is possible, the error says what to change.
//   - outbound: a container retryproxy-out listens on loopback. The environment variable of the
//     application that holds the remote service's URL is pointed at it, or the remote service's name is
//     pointed at loopback (a host alias).
//
// What the upstream speaks, HTTP/1.1 or HTTP/2 without TLS (h2c), is read from probes, names of ports
// and appProtocol, or from the options. A contradiction is an error: with the wrong protocol the Pods
// would become ready and every call fail.
//
// There are two containers because they end differently: the inbound one drains when the Pod begins
// to terminate, the outbound one serves until the application has ended.
//
// A sidecar that was already injected is not changed, so injecting twice has the same result as
// once. The package reads no files and connects to no cluster.
package inject
