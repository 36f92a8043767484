// Package cluster tests what happens to requests on a real Kubernetes of one
// node: while inject's sidecars move in, while the application behind a gateway
// is rolled out, and when a Pod ends.
//
// cluster.sh starts the cluster on this machine and ends it. The first time it
// compiles Kubernetes from Go modules (build/go.mod), which takes many minutes;
// the programs stay in /tmp/retryproxy-cluster/bin. It needs Linux, root, Docker,
// iptables, iproute2 and openssl.
//
//	make e2e-cluster
//	deploy/test/cluster/cluster.sh up    # to look at it by hand: ... kubectl get pods -A
//	deploy/test/cluster/cluster.sh down
//
// A cluster that is up already is used and left up.
package cluster
