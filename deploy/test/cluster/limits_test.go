package cluster

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/deploy/test/engine"
)

// workingSet is a container's memory in MiB as the kubelet counts it, the figure by which it
// evicts Pods. The kubelet looks every 10 s or so.
func workingSet(t *testing.T, pod, container string) float64 {
	t.Helper()
	var summary struct {
		Pods []struct {
			PodRef     struct{ Name string }
			Containers []struct {
				Name   string
				Memory struct{ WorkingSetBytes float64 }
			}
		}
	}
	out := kubectl(t, "get", "--raw", "/api/v1/nodes/node/proxy/stats/summary")
	if err := json.Unmarshal([]byte(out), &summary); err != nil {
		t.Fatal(err)
	}
	for _, p := range summary.Pods {
		for _, c := range p.Containers {
			if p.PodRef.Name == pod && c.Name == container {
				return c.Memory.WorkingSetBytes / (1 << 20)
			}
		}
	}
	return 0
}

// mostMemory is the largest working set within a time.
func mostMemory(t *testing.T, pod, container string, d time.Duration) (most float64) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(2 * time.Second) {
		most = max(most, workingSet(t, pod, container))
	}
	return most
}

// throttling is how many periods of a container's processor time there were, and in how many of
// them it had to wait, as its cgroup counts them.
func (n *namespace) throttling(t *testing.T, pod, container string) (periods, throttled int) {
	t.Helper()
	out := engine.Run(t, nil, "bash", "-c", `find /sys/fs/cgroup -path '*/kubepods/*' -name "*$0*" -type d -exec cat {}/cpu.stat \; 2>/dev/null || true`,
		n.containerID(t, pod, container))
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 2 {
			value, _ := strconv.Atoi(f[1])
			switch f[0] {
			case "nr_periods":
				periods = value
			case "nr_throttled":
				throttled = value
			}
		}
	}
	return periods, throttled
}

// restarts is how often a Pod's containers were restarted.
func (n *namespace) restarts(t *testing.T, pod string) string {
	t.Helper()
	return strings.TrimSpace(n.kubectl(t, "get", "pod", pod, "-o",
		"jsonpath={.status.initContainerStatuses[*].restartCount} {.status.containerStatuses[*].restartCount}"))
}

// single is the store with one Pod.
func single(name string) string {
	return strings.Replace(store(name), "replicas: 3", "replicas: 1", 1)
}

// The sidecar stays within its default limit of 128 MiB, at rest, under load, and while 2200
// connections try to use it up; others are served meanwhile. It knows the limit from the cgroup.
func TestTheSidecarKeepsToItsMemory(t *testing.T) {
	n := prepare(t)
	n.apply(t, injected(t, single("shop")))
	n.rolledOut(t, "shop")
	c := n.client(t, "client")
	name, address := n.pod(t, "app=shop")
	target := "http://shop." + n.name + ".svc.cluster.local/"
	answers(t, "http://"+n.address(t, "shop")+"/")

	soft, err := strconv.ParseFloat(metric(address+":9797", "go_gc_gomemlimit_bytes"), 64)
	if err != nil || soft < 80<<20 || soft >= 128<<20 {
		t.Errorf("GOMEMLIMIT is %.0f MiB: %v", soft/(1<<20), err)
	}
	procs := metric(address+":9797", "go_sched_gomaxprocs_threads")
	fmt.Printf("limit 128 MiB: GOMEMLIMIT %.0f MiB, GOMAXPROCS %s\n", soft/(1<<20), procs)

	rest := mostMemory(t, name, "retryproxy-in", 12*time.Second)
	c.start(t, target, 500)
	loaded := mostMemory(t, name, "retryproxy-in", 25*time.Second)
	r := c.stop(t)
	fmt.Printf("working set: %.0f MiB at rest, %.0f MiB under %d requests (%d failed, p99 %.0f ms)\n", rest, loaded, r.Sent, r.Failed, r.P99)
	if r.Failed > 0 {
		t.Errorf("%s", r.kinds())
	}

	held := make(chan string, 1)
	go func() { held <- post(t, fmt.Sprintf("%s/attack?at=%s:18080&for=30s", c.at, address)) }()
	c.start(t, target, 50)
	attacked := mostMemory(t, name, "retryproxy-in", 30*time.Second)
	r = c.stop(t)
	fmt.Printf("working set: %.0f MiB while %s connections attacked; of %d other requests %d failed (p99 %.0f ms) %s\n",
		attacked, strings.TrimSpace(<-held), r.Sent, r.Failed, r.P99, r.kinds())
	if attacked >= 128 || loaded >= 128 || rest == 0 || loaded == 0 || attacked == 0 {
		t.Errorf("working set %.0f, %.0f, %.0f MiB: want each known and below 128", rest, loaded, attacked)
	}
	if r.Failed > 0 {
		t.Errorf("%d of %d other requests failed: %s", r.Failed, r.Sent, r.kinds())
	}
	if got := n.restarts(t, name); got != "0 0" {
		t.Errorf("restarts: %s", got)
	}
}

// A sidecar with a tenth of a processor is slow, but its probes pass under load: it is neither
// restarted nor left out.
func TestAThrottledSidecarMeetsItsProbes(t *testing.T) {
	n := prepare(t)
	n.apply(t, injected(t, single("shop")))
	n.kubectl(t, "patch", "deployment", "shop", "--type=json", "-p",
		`[{"op": "add", "path": "/spec/template/spec/initContainers/0/resources/limits/cpu", "value": "100m"}]`)
	n.rolledOut(t, "shop")
	c := n.client(t, "client")
	name, address := n.pod(t, "app=shop")
	c.start(t, "http://shop."+n.name+".svc.cluster.local/", 200)
	time.Sleep(45 * time.Second)
	r := c.stop(t)
	periods, throttled := n.throttling(t, name, "retryproxy-in")
	events := n.kubectl(t, "get", "events", "--field-selector", "involvedObject.name="+name+",reason=Unhealthy", "-o",
		`jsonpath={range .items[*]}{.involvedObject.fieldPath} {.message}{"\n"}{end}`)
	fmt.Printf("100m of CPU: throttled in %d of %d periods; %d of %d requests failed, p50 %.0f ms, p99 %.0f ms; GOMAXPROCS %s\n",
		throttled, periods, r.Failed, r.Sent, r.P50, r.P99, metric(address+":9797", "go_sched_gomaxprocs_threads"))
	if throttled == 0 {
		t.Error("it was never throttled: this shows nothing")
	}
	if strings.Contains(events, "retryproxy-in") && !strings.Contains(events, "Startup") {
		t.Errorf("a probe failed: %s", events)
	}
	if got := n.restarts(t, name); got != "0 0" {
		t.Errorf("restarts: %s", got)
	}
	if r.Failed > 0 {
		t.Errorf("%d of %d requests failed: %s", r.Failed, r.Sent, r.kinds())
	}
}
