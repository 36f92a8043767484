// Package deploytest holds the manifests in deploy/ to what Kubernetes accepts: they are
// rendered by kustomize and Helm themselves, decoded strictly into the API
// types, given the API server's own defaults and validation, and checked
// against the restricted Pod Security Standard. Nothing is sent to a cluster.
//
// It is a module of its own, so that the sidecar's go.mod does not gain
// Kubernetes. Run it by `make manifests`.
package deploytest
