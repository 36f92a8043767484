// Package inject puts a retryproxy beside the containers of Kubernetes Pod
// templates and leads traffic through it.
//
// Stream does it for YAML as people keep it in files, Pod for one object as the
// API server sends it to an admission webhook. Both do the same to a Pod:
//
//   - inbound: a container retryproxy-in listens on a port of its own and passes
//     requests on to the application's port on loopback. A named port keeps its
//     name and gets the sidecar's number, so that every Service that targets the
//     name leads through the sidecar; a Service that targets the number is
//     changed when it is in the same stream. What can be done by neither is an
//     error that says what to change.
//   - outbound: a container retryproxy-out listens on loopback. The environment
//     variable of the application that holds the remote service's URL is pointed
//     at it, or the remote service's name is pointed at loopback (a host alias).
//
// The two sides are two containers because they end differently: the inbound one
// drains when the Pod begins to end, the outbound one serves until the
// application is gone.
//
// What was injected already is left as it is, so injecting twice is the same as
// once. Nothing here reads files or talks to a cluster.
package inject
