package cluster

import (
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/deploy/test/engine"
)

// traces are what a cluster could leave on this machine: interfaces, routes, packet filter rules,
// mounts, cgroups, processes, directories and kernel settings, one a line.
func traces() (lines []string) {
	for _, look := range []string{
		`ip -o link | awk -F': ' '{print "interface " $2}' | sed 's/@.*//'`,
		`ip route | sed 's/^/route /'`,
		`iptables-save | grep '^-A' | sed 's/^/rule /'`,
		`findmnt -rno TARGET | sed 's/^/mount /'`,
		`find /sys/fs/cgroup -type d -path '*/kubepods*' | sed 's/^/cgroup /'`,
		`ls -d /var/lib/kubelet /var/log/containers /var/lib/cni /run/containerd/io.containerd.grpc.v1.cri 2>/dev/null | sed 's/^/directory /'`,
		`sysctl net.ipv4.ip_forward net.bridge.bridge-nf-call-iptables vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops`,
		`for exe in /proc/[0-9]*/exe; do readlink "$exe"; done | grep "^` + work() + `/" | sed 's/^/process /'`,
	} {
		out, _ := exec.Command("bash", "-c", "export PATH=$PATH:/usr/sbin:/sbin; "+look).Output() // a look that finds nothing fails
		lines = append(lines, strings.Split(strings.TrimSpace(string(out)), "\n")...)
	}
	return lines
}

// left is what stays there and was not before. What other containers of this machine bring, and
// what the kernel takes away later, may be there for a while.
func left(before []string) (lines []string) {
	for end := time.Now().Add(engine.Patience); ; time.Sleep(time.Second) {
		lines = slices.DeleteFunc(traces(), func(line string) bool { return slices.Contains(before, line) })
		if len(lines) == 0 || time.Now().After(end) {
			return lines
		}
	}
}
