package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/deploy/test/engine"
)

// restricted is the security context that the Pod Security Standard restricted wants of a
// container.
const restricted = `{runAsNonRoot: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}`

// clientPod is the client in the cluster, see application/load.go.
func clientPod(name string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %s}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: client
    image: retryproxy-application:test
    imagePullPolicy: Never
    args: [load]
    readinessProbe: {httpGet: {path: /, port: 3001}, periodSeconds: 1}
    securityContext: %s
---
`, name, name, restricted)
}

// report is what the client saw, see application/load.go.
type report struct {
	Sent, Failed, Seconds int
	By                    map[string]int
	P50, P99, Max         float64
	Slow                  []string
}

// kinds are the failures by their kind.
func (r *report) kinds() string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(r.By)) {
		all = append(all, fmt.Sprintf("%d %s", r.By[k], k))
	}
	return strings.Join(all, ", ")
}

// client orders the client's Pod.
type client struct{ at string }

// client starts the client's Pod.
func (n *namespace) client(t *testing.T, name string) client {
	t.Helper()
	n.apply(t, clientPod(name))
	n.kubectl(t, "wait", "--for=condition=Ready", "--timeout=2m", "pod/"+name)
	return client{"http://" + n.kubectl(t, "get", "pod", name, "-o", "jsonpath={.status.podIP}") + ":3001"}
}

func (c client) start(t *testing.T, target string, rate int) {
	t.Helper()
	post(t, fmt.Sprintf("%s/start?rate=%d&url=%s", c.at, rate, url.QueryEscape(target)))
}

func (c client) stop(t *testing.T) (r report) {
	t.Helper()
	if err := json.Unmarshal([]byte(post(t, c.at+"/stop")), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// store is an application of three Pods, its Service, and a disruption budget. It has no preStop
// and ends in order at SIGTERM, as most applications do.
func store(name string) string {
	return strings.ReplaceAll(`apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  replicas: 3
  selector: {matchLabels: {app: NAME}}
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      containers:
      - name: app
        image: retryproxy-application:test
        imagePullPolicy: Never
        ports: [{name: http, containerPort: 3000}]
        readinessProbe: {httpGet: {path: /, port: 3000}, periodSeconds: 1, timeoutSeconds: 5, failureThreshold: 2}
        resources: {limits: {memory: 64Mi}}
        securityContext: `+restricted+`
---
apiVersion: v1
kind: Service
metadata: {name: NAME}
spec:
  selector: {app: NAME}
  ports: [{port: 80, targetPort: http}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: NAME}
spec:
  maxUnavailable: 1
  selector: {matchLabels: {app: NAME}}
---
`, "NAME", name)
}

// event is something that happens to an application under load.
type event struct {
	name string
	do   func(*testing.T, *namespace, string)
	// free is whether clients behind the sidecar must not notice it at all. What kills the sidecar
	// itself, or the whole Pod at once, cannot be free.
	free bool
}

// order asks a Pod's application directly, past the sidecar.
func order(t *testing.T, n *namespace, app, path string) {
	t.Helper()
	_, address := n.pod(t, "app="+app)
	_, _ = engine.Ask("POST", "http://"+address+":3000"+path) // its connection is cut off
}

var events = []event{
	{"nothing", func(t *testing.T, _ *namespace, _ string) { time.Sleep(5 * time.Second) }, true},
	{"`kubectl rollout restart`", func(t *testing.T, n *namespace, app string) {
		n.kubectl(t, "rollout", "restart", "deployment/"+app)
		n.rolledOut(t, app)
	}, true},
	{"Pod deleted", func(t *testing.T, n *namespace, app string) {
		name, _ := n.pod(t, "app="+app)
		n.kubectl(t, "delete", "pod", name)
		n.rolledOut(t, app)
	}, true},
	{"scaled to 1 and back", func(t *testing.T, n *namespace, app string) {
		for _, replicas := range []string{"1", "3"} {
			n.kubectl(t, "scale", "deployment/"+app, "--replicas", replicas)
			n.rolledOut(t, app)
		}
	}, true},
	{"application's container killed", func(t *testing.T, n *namespace, app string) {
		order(t, n, app, "/kill")
		time.Sleep(3 * time.Second)
		n.allReady(t, app)
	}, true},
	{"application out of memory", func(t *testing.T, n *namespace, app string) {
		order(t, n, app, "/grow")
		time.Sleep(3 * time.Second)
		n.allReady(t, app)
	}, true},
	{"node drained", func(t *testing.T, n *namespace, app string) { n.drain(t, app) }, true},
	{"sidecar's container killed", func(t *testing.T, n *namespace, app string) {
		name, _ := n.pod(t, "app="+app)
		n.killContainer(t, name, "retryproxy-in")
		time.Sleep(3 * time.Second)
		n.allReady(t, app)
	}, false},
	{"Pod deleted by force", func(t *testing.T, n *namespace, app string) {
		name, _ := n.pod(t, "app="+app)
		n.kubectl(t, "delete", "pod", name, "--force", "--grace-period=0")
		n.rolledOut(t, app)
	}, false},
}

// allReady waits for the Deployment to have all its Pods ready.
func (n *namespace) allReady(t *testing.T, app string) {
	t.Helper()
	n.kubectl(t, "wait", "--for=condition=Ready", "--timeout=3m", "pod", "-l", "app="+app)
}

// drained is the label's value with which drain finds an application's Pods. kubectl drain selects in
// all namespaces, and those of other tests have applications of the same name.
func (n *namespace) drained(app string) string { return n.name + "-" + app }

// drainable is store with a label for drain.
func (n *namespace) drainable(app string) string {
	labels := "metadata: {labels: {app: " + app
	return strings.Replace(store(app), labels+"}}", labels+", drained: "+n.drained(app)+"}}", 1)
}

// drain lets kubectl evict the Pods of a drainable application from the node, within their disruption budget.
// There is one node: it is opened again at once, so that the Pods that replace them find a place,
// as they would on another one.
func (n *namespace) drain(t *testing.T, app string) {
	t.Helper()
	ended := make(chan string, 1)
	go func() {
		out, err := n.try(t, "drain", "node", "--pod-selector=drained="+n.drained(app), "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=4m")
		if err == nil {
			out = ""
		}
		ended <- out
	}()
	for {
		select {
		case problem := <-ended:
			kubectl(t, "uncordon", "node")
			if problem != "" {
				t.Errorf("drain: %s", problem)
			}
			n.rolledOut(t, app)
			return
		case <-time.After(time.Second):
			kubectl(t, "uncordon", "node")
		}
	}
}

// killContainer kills a container's process as the kernel would.
func (n *namespace) killContainer(t *testing.T, pod, container string) {
	t.Helper()
	engine.Run(t, nil, "bash", script, "ctr", "tasks", "kill", "--signal", "SIGKILL", n.containerID(t, pod, container))
}

// containerID is the one that containerd has for it.
func (n *namespace) containerID(t *testing.T, pod, container string) string {
	t.Helper()
	id := n.kubectl(t, "get", "pod", pod, "-o", fmt.Sprintf(
		`jsonpath={.status.containerStatuses[?(@.name=="%s")].containerID}{.status.initContainerStatuses[?(@.name=="%s")].containerID}`, container, container))
	if id == "" {
		t.Fatalf("Pod %s has no container %s", pod, container)
	}
	return strings.TrimPrefix(id, "containerd://")
}

// What clients within the cluster see of what happens to Pods, with the sidecar and without:
// 200 requests a second to each of two Services, half of them on connections of their own.
// Behind the sidecar no request fails, unless the sidecar itself is killed.
func TestClientsDoNotNoticeWhatHappensToPods(t *testing.T) {
	n := prepare(t)
	n.apply(t, n.drainable("plain"))
	n.apply(t, injected(t, n.drainable("shop")))
	apps := []string{"plain", "shop"}
	clients := map[string]client{}
	for _, app := range apps {
		n.rolledOut(t, app)
		clients[app] = n.client(t, "client-"+app)
		answers(t, "http://"+n.address(t, app)+"/")
	}
	lines := []string{
		"| What happens | Without sidecar: failed | with which errors | in seconds | With sidecar: failed | p99 with, without (ms) | slowest with (ms) |",
		"|---|---|---|---|---|---|---|",
	}
	for _, e := range events {
		t.Run(e.name, func(t *testing.T) {
			lines = append(lines, happen(t, n, e, clients))
		})
	}
	fmt.Println(strings.Join(lines, "\n"))
}

// happen lets the event happen to each application under load and returns a line of the table.
func happen(t *testing.T, n *namespace, e event, clients map[string]client) string {
	reports := map[string]report{}
	for app, c := range clients { // one after the other: the machine is small
		if app == "plain" && strings.HasPrefix(e.name, "sidecar's") {
			continue
		}
		c.start(t, "http://"+app+"."+n.name+".svc.cluster.local/", 200)
		time.Sleep(time.Second)
		e.do(t, n, app)
		time.Sleep(2 * time.Second)
		reports[app] = c.stop(t)
	}
	plain, shop := reports["plain"], reports["shop"]
	line := fmt.Sprintf("| %s | %d of %d | %s | %d | %d of %d %s | %.0f, %.0f | %.0f |", e.name,
		plain.Failed, plain.Sent, plain.kinds(), plain.Seconds, shop.Failed, shop.Sent, shop.kinds(), shop.P99, plain.P99, shop.Max)
	t.Log(line)
	if len(shop.Slow) > 0 {
		t.Logf("slow with the sidecar: %q", shop.Slow)
	}
	if e.free && shop.Failed > 0 || shop.Sent < 500 {
		t.Errorf("%d of %d requests failed with the sidecar: %s", shop.Failed, shop.Sent, shop.kinds())
	}
	return line
}
