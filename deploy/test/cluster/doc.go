// Package cluster tests on a real Kubernetes of one node what docs/tutorials/kubernetes.md and
// docs/how-to/kubernetes-*.md say: the tutorial, the commands of the pages, every overlay, the
// chart, the webhook, and what clients see of what happens to Pods.
//
// cluster.sh starts the cluster on this machine and ends it. The first time it compiles
// Kubernetes from Go modules (build/go.mod), and for some tests Helm, prometheus-adapter and
// Prometheus (adapter/go.mod, prometheus/go.mod), which takes many minutes; the programs stay in
// /tmp/retryproxy-cluster/bin. It needs Linux, root, Docker, iptables, iproute2 and openssl;
// the tests also Debian's nginx.
//
//	make e2e-cluster
//	deploy/test/cluster/cluster.sh up    # to look at it by hand: ... kubectl get pods -A
//	deploy/test/cluster/cluster.sh down
//
// A cluster that is up already is used and left up.
package cluster
