// Package pod runs what `retryproxyctl inject` prints as containers that share one
// network, as a Pod's do: started and ended in the kubelet's order, with the
// hooks and probes of the manifest.
package pod

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/deploy/test/engine"
)

// pod is one that runs, until the test ends.
type pod struct {
	spec    podSpec
	address string
	names   map[string]string // of containers on the engine, by name in the manifest
}

// start does what a kubelet does: the shared network with its names and kernel
// settings, the sidecars one after the other, each until its startup probe says
// yes, and then the application.
func start(t *testing.T, network string, spec podSpec) *pod {
	t.Helper()
	args := []string{"--network", network}
	for _, a := range spec.HostAliases {
		for _, h := range a.Hostnames {
			args = append(args, "--add-host", h+":"+a.IP)
		}
	}
	for _, s := range spec.SecurityContext.Sysctls {
		args = append(args, "--sysctl", s.Name+"="+s.Value)
	}
	// What it runs plays no part: it holds the network, on a port that nobody asks.
	sandbox := engine.Start(t, "sandbox", append(args, "--env=LISTEN=127.0.0.1:1024", engine.Example(t), "flaky")...)
	p := &pod{spec: spec, address: engine.Address(t, sandbox), names: map[string]string{}}
	for _, c := range append(append([]container{}, spec.InitContainers...), spec.Containers...) {
		name := engine.Start(t, c.Name, append([]string{"--network", "container:" + sandbox}, c.flags()...)...)
		p.names[c.Name] = name
		if ask := c.StartupProbe.Exec.Command; len(ask) > 0 {
			engine.Await(t, "startup of "+c.Name, func() bool {
				_, err := engine.Try(context.Background(), t, nil, "docker", append([]string{"exec", name}, ask...)...)
				return err == nil
			})
		}
	}
	engine.Await(t, "application", func() bool {
		status, _ := engine.Get("http://" + p.address + ":3000/healthz") // past the sidecars, which count
		return status == http.StatusOK
	})
	return p
}

// end does what a kubelet does: all hooks at once, SIGTERM to the application
// when its hook has ended, and to the sidecars after it, last started first.
func (p *pod) end(t *testing.T) {
	t.Helper()
	var hooks sync.WaitGroup
	defer hooks.Wait()
	for _, c := range p.spec.InitContainers {
		if hook := c.Lifecycle.PreStop.Exec.Command; len(hook) > 0 {
			hooks.Go(func() {
				if out, err := engine.Try(context.Background(), t, nil, "docker", append([]string{"exec", p.names[c.Name]}, hook...)...); err != nil {
					t.Errorf("preStop of %s: %v: %s", c.Name, err, out)
				}
			})
		}
	}
	for _, c := range p.spec.Containers {
		if hook := c.Lifecycle.PreStop.HTTPGet; hook.Path != "" {
			if status, body := engine.Get(fmt.Sprintf("http://%s:%d%s", p.address, hook.Port, hook.Path)); status != http.StatusOK {
				t.Errorf("preStop of %s: %d %s", c.Name, status, body)
			}
		}
		p.stop(t, c.Name)
	}
	for i := len(p.spec.InitContainers) - 1; i >= 0; i-- {
		p.stop(t, p.spec.InitContainers[i].Name)
	}
}

// stop wants the container to end in order, the sidecar after its application.
func (p *pod) stop(t *testing.T, name string) {
	t.Helper()
	engine.Docker(t, "stop", "--time", fmt.Sprint(p.spec.TerminationGracePeriodSeconds), p.names[name])
	if got := engine.Inspect(t, p.names[name], "{{.State.ExitCode}}"); got != "0" {
		t.Errorf("%s ended with code %s", name, got)
	}
}

// sidecar is one by name, running.
func (p *pod) sidecar(t *testing.T, name string) *container {
	t.Helper()
	for i := range p.spec.InitContainers {
		if c := &p.spec.InitContainers[i]; c.Name == name {
			return c
		}
	}
	t.Fatalf("the Pod has no sidecar %s", name)
	return nil
}

// awaitMetric waits for a line of the sidecar's metrics.
func (p *pod) awaitMetric(t *testing.T, sidecar, line string) {
	t.Helper()
	url := "http://" + p.address + p.sidecar(t, sidecar).env("RETRYPROXY_ADMIN_LISTEN") + "/metrics"
	engine.Await(t, line+" of "+sidecar, func() bool {
		_, metrics := engine.Get(url)
		return strings.Contains(metrics, "\n"+line+"\n")
	})
}

// manifest is an application on port 3000 and its Service. It asks %s.
func manifest(image, upstream string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata:
  name: shop
spec:
  selector:
    matchLabels: {app: shop}
  template:
    metadata:
      labels: {app: shop}
    spec:
      containers:
      - name: shop
        image: %s
        args: [app]
        ports:
        - {name: http, containerPort: 3000}
        env:
        - {name: UPSTREAM, value: "%s"}
---
apiVersion: v1
kind: Service
metadata:
  name: shop
spec:
  selector: {app: shop}
  ports:
  - {port: 80, targetPort: http}
`, image, upstream)
}

// requests are sent to each Pod; failEvery says which of them the upstream fails
// when they come for the first time.
const requests, failEvery = 12, 3

// upstream fails, and takes its time for each response.
func upstream(t *testing.T, network string, millis int) string {
	t.Helper()
	return engine.Start(t, "upstream", "--network", network, fmt.Sprintf("--env=FAIL_EVERY=%d", failEvery), fmt.Sprintf("--env=DELAY_MS=%d", millis),
		engine.Example(t), "flaky")
}

// checkTraffic wants each request answered, and every one counted on its way:
// by the sidecar before the application, by the one behind it, which retries
// those that the upstream fails, and by the upstream.
func (p *pod) checkTraffic(t *testing.T, port int, upstream string, through ...string) {
	t.Helper()
	for i := range requests {
		if status, body := engine.Get(fmt.Sprintf("http://%s:%d/orders/%d", p.address, port, i)); status != http.StatusOK {
			t.Errorf("request %d: %d %s", i, status, body)
		}
	}
	for _, sidecar := range through {
		p.awaitMetric(t, sidecar, fmt.Sprintf(`retryproxy_requests_total{code="200",method="GET",route="default"} %d`, requests))
	}
	p.awaitMetric(t, "retryproxy-out", fmt.Sprintf(`retryproxy_outcomes_total{outcome="recovered",route="default"} %d`, requests/failEvery))
	if _, stats := engine.Get("http://" + engine.Address(t, upstream) + ":3000/stats"); !strings.Contains(stats, fmt.Sprintf(`"GET 200":%d`, requests)) {
		t.Errorf("the upstream counted %s", stats)
	}
}

// Traffic comes through the sidecar that the Service's port now leads to, and
// goes out through the one that the variable now names.
func TestInjectedOnBothSides(t *testing.T) {
	engine.Asked(t, "pod")
	network := engine.Network(t)
	up := upstream(t, network, 10)
	address := "http://" + up + ":3000"
	spec, target := inject(t, manifest(engine.Example(t), address), "--image", engine.Image(t), "--inbound", "--outbound-env", "UPSTREAM")
	if got := spec.Containers[0].env("UPSTREAM"); got == address || target == 3000 {
		t.Fatalf("nothing is led through the sidecars: UPSTREAM=%s, port %d", got, target)
	}
	p := start(t, network, spec)
	p.checkTraffic(t, target, up, "retryproxy-in", "retryproxy-out")
}

// The application keeps its URL; the name leads to the sidecar, on a port below
// 1024 that it opens without rights.
func TestInjectedByHostAlias(t *testing.T) {
	engine.Asked(t, "pod")
	network := engine.Network(t)
	up := upstream(t, network, 10)
	spec, target := inject(t, manifest(engine.Example(t), "http://api.internal"), "--image", engine.Image(t),
		"--outbound-host", "api.internal:80=http://"+up+":3000")
	p := start(t, network, spec)
	p.checkTraffic(t, target, up, "retryproxy-out")
}

// A Pod's end costs no request that reached it: neither those in flight nor
// those that come until everybody has noticed.
func TestInjectedPodEndsInOrder(t *testing.T) {
	engine.Asked(t, "pod")
	network := engine.Network(t)
	up := upstream(t, network, 1500)
	spec, target := inject(t, manifest(engine.Example(t), "http://"+up+":3000"), "--image", engine.Image(t), "--inbound", "--outbound-env", "UPSTREAM")
	p := start(t, network, spec)

	const underWay, later = 6, 20
	var clients sync.WaitGroup
	call := func(n int) {
		clients.Go(func() {
			if status, body := engine.Get(fmt.Sprintf("http://%s:%d/orders/%d", p.address, target, n)); status != http.StatusOK {
				t.Errorf("request %d: %d %s", n, status, body)
			}
		})
	}
	for n := range underWay {
		call(n)
	}
	p.awaitMetric(t, "retryproxy-in", fmt.Sprintf(`retryproxy_requests_in_flight{route="default"} %d`, underWay))
	clients.Go(func() { // within the drain delay of 5 s
		for n := range later {
			call(underWay + n)
			time.Sleep(100 * time.Millisecond)
		}
	})
	p.end(t)
	clients.Wait()
}
