package inject

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// beside returns a Deployment with a named port, whose Pods have the metadata and the containers,
// and its Service.
func beside(metadata, initContainers, containers string) string {
	return `apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  template:
    metadata: {` + metadata + `}
    spec:
      initContainers: [` + initContainers + `]
      containers: [{name: shop, image: i, ports: [{name: http, containerPort: 3000}], env: [{name: API_URL, value: "http://api"}]}` + containers + `]
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {selector: {app: shop}, ports: [{port: 80, targetPort: http}]}
`
}

const (
	shopLabel = "labels: {app: shop}"
	asksIstio = `labels: {app: shop, sidecar.istio.io/inject: "true"}`
	asksLink  = "labels: {app: shop}, annotations: {linkerd.io/inject: enabled}"
)

func both() Options {
	o := Default("retryproxy:1")
	o.Inbound, o.OutboundEnv = true, []string{"API_URL"}
	return o
}

func TestAMeshIsRecognised(t *testing.T) {
	for _, c := range []struct {
		name, metadata, initContainers, containers string
		want                                       string // in the notes; "" without a mesh
	}{
		{"no mesh", shopLabel, "", "", ""},
		{"Istio's label", asksIstio, "", "", "Istio"},
		{"Istio's annotation", shopLabel + `, annotations: {sidecar.istio.io/inject: "true"}`, "", "", "Istio"},
		{"Istio's revision", "labels: {app: shop, istio.io/rev: canary}", "", "", "Istio"},
		{"Istio's ambient mode", "labels: {app: shop, istio.io/dataplane-mode: ambient}", "", "", "Istio"},
		{"Istio's container", shopLabel, "", ", {name: istio-proxy, ports: [{name: http-envoy-prom, containerPort: 15090}]}", "Istio"},
		{"Istio's native sidecar", shopLabel, "{name: istio-init}, {name: istio-proxy, restartPolicy: Always}", "", "Istio"},
		{"Istio refused", `labels: {app: shop, sidecar.istio.io/inject: "false", istio.io/rev: canary}`, "", "", ""},
		{"Linkerd's annotation", asksLink, "", "", "Linkerd"},
		{"Linkerd's ingress mode", "labels: {app: shop}, annotations: {linkerd.io/inject: ingress}", "", "", "Linkerd"},
		{"Linkerd's container", shopLabel, "{name: linkerd-init}", ", {name: linkerd-proxy, ports: [{containerPort: 4143}, {name: linkerd-admin, containerPort: 4191}]}", "Linkerd"},
		{"Linkerd refused", "labels: {app: shop}, annotations: {linkerd.io/inject: disabled}", "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := Stream([]byte(beside(c.metadata, c.initContainers, c.containers)), both())
			if err != nil {
				t.Fatal(err)
			}
			after := podOf(string(r.Output))
			value := map[bool]string{true: "", false: "deny"}[c.want == ""]
			for _, name := range []string{inboundName, outboundName} {
				if got := variable(after.container(name), "RETRYPROXY_LAYERED_RETRIES"); got != value {
					t.Errorf("%s: RETRYPROXY_LAYERED_RETRIES=%q, want %q", name, got, value)
				}
			}
			if warned := slices.ContainsFunc(r.Notes, func(n Note) bool { return strings.HasPrefix(n.Text, c.want+" also retries") }); warned != (c.want != "") {
				t.Errorf("warned: %v, notes %v", warned, r.Notes)
			}
			again, err := Stream(r.Output, both())
			if err != nil || string(again.Output) != string(r.Output) || len(again.Notes) > 0 {
				t.Errorf("injected again: %v, notes %v\n%s", err, again.Notes, again.Output)
			}
		})
	}
}

// The user's settings override those for the mesh. A setting is never both in the environment and
// in the file.
func TestLayeredRetriesAreTheUsersToSet(t *testing.T) {
	o := both()
	o.Settings = []Setting{{"RETRYPROXY_LAYERED_RETRIES", "allow"}}
	r, err := Stream([]byte(beside(asksIstio, "", "")), o)
	if err != nil {
		t.Fatal(err)
	}
	if got := variable(podOf(string(r.Output)).container(inboundName), "RETRYPROXY_LAYERED_RETRIES"); got != "allow" {
		t.Errorf("RETRYPROXY_LAYERED_RETRIES=%q, want allow", got)
	}
	o = both()
	o.ConfigMap = "settings"
	if r, err = Stream([]byte(beside(asksIstio, "", "")), o); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(r.Output), "LAYERED_RETRIES") || !slices.ContainsFunc(r.Notes, func(n Note) bool {
		return strings.Contains(n.Text, "RETRYPROXY_LAYERED_RETRIES=deny in the ConfigMap settings")
	}) {
		t.Errorf("notes %v\n%s", r.Notes, r.Output)
	}
}

// A native sidecar of a mesh starts before ours and ends after it, so it forwards our traffic from
// the first request to the last.
func TestTheMeshStaysBeforeTheSidecar(t *testing.T) {
	for _, c := range []struct {
		name, initContainers, containers string
		want                             string
	}{
		{"Istio", "{name: istio-init}, {name: istio-proxy, restartPolicy: Always}, {name: migrate}", "",
			"istio-init istio-proxy retryproxy-out retryproxy-in migrate"},
		{"Linkerd", "{name: migrate}, {name: linkerd-init}, {name: linkerd-proxy, restartPolicy: Always}", "",
			"migrate linkerd-init linkerd-proxy retryproxy-out retryproxy-in"},
		{"Istio's proxy as an ordinary container", "{name: istio-init}, {name: migrate}", ", {name: istio-proxy}",
			"istio-init retryproxy-out retryproxy-in migrate"},
		{"no mesh", "{name: migrate}", "", "retryproxy-out retryproxy-in migrate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := both()
			r, err := Stream([]byte(beside(shopLabel, c.initContainers, c.containers)), o)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, n := range items(get(podOf(string(r.Output)).spec, "initContainers")) {
				names = append(names, text(get(n, "name")))
			}
			if got := strings.Join(names, " "); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
			warned := slices.ContainsFunc(r.Notes, func(n Note) bool { return strings.Contains(n.Text, "istio-proxy is not a native sidecar") })
			if want := strings.Contains(c.containers, "istio-proxy"); warned != want {
				t.Errorf("warned of a proxy that ends early: %v, want %v: %v", warned, want, r.Notes)
			}
		})
	}
}

func TestPortsOfTheMeshAreRefused(t *testing.T) {
	host := func(port int) func(*Options) {
		return func(o *Options) {
			o.OutboundEnv = nil
			o.OutboundHosts = []HostAlias{{Host: "api", Port: port, Upstream: "http://api.shop.svc.cluster.local"}}
		}
	}
	inbound := func(port string) func(*Options) { return func(o *Options) { o.InboundPort = port } }
	for _, c := range []struct {
		name, metadata string
		change         func(*Options)
		want           string // in the error; "" for none
	}{
		{"an outbound host on Istio's port", asksIstio, host(15001), "host api: port 15001 belongs to Istio's proxy"},
		{"on one that Istio reserves", asksIstio, host(15050), "host api: port 15050 belongs to Istio's proxy"},
		{"on Linkerd's port", asksLink, host(4140), "host api: port 4140 belongs to Linkerd's proxy"},
		{"on one that Linkerd reserves", asksLink, host(4150), "host api: port 4150 belongs to Linkerd's proxy"},
		{"on one that Linkerd was given", asksLink[:len(asksLink)-1] + `, config.linkerd.io/admin-port: "5000"}`, host(5000), "port 5000 belongs to Linkerd's proxy"},
		{"an application on Istio's port", asksIstio, inbound("15006"), "the application: port 15006 belongs to Istio's proxy"},
		{"an application on Linkerd's port", asksLink, inbound("4143"), "the application: port 4143 belongs to Linkerd's proxy"},
		{"a port of the other mesh", asksIstio, host(4140), ""},
		{"without a mesh", shopLabel, host(15001), ""},
		{"just below", asksIstio, host(14999), ""},
		{"just above", asksLink, host(4192), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := both()
			c.change(&o)
			r, err := Stream([]byte(beside(c.metadata, "", "")), o)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && err == nil:
				t.Errorf("accepted:\n%s", r.Output)
			case c.want != "" && !strings.Contains(err.Error(), c.want):
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// A sidecar never takes a port of the mesh, even if all its usual ports are in use.
func TestFreePortsAreNotTheMeshs(t *testing.T) {
	p := podOf(beside(asksLink, "", ""))
	p.mesh = meshOf(p)
	if got := p.free(4140); got != 4192 {
		t.Errorf("free port %d, want 4192", got)
	}
}

func TestListsOfPortsThatNameOnlyTheApplicationAreNoted(t *testing.T) {
	for _, c := range []struct {
		name, metadata string
		want           bool
	}{
		{"Istio", asksIstio + `, annotations: {traffic.sidecar.istio.io/includeInboundPorts: "80,3000"}`, true},
		{"Istio, both named", asksIstio + `, annotations: {traffic.sidecar.istio.io/includeInboundPorts: "3000,18080"}`, false},
		{"Istio, another port", asksIstio + `, annotations: {traffic.sidecar.istio.io/excludeInboundPorts: "9000"}`, false},
		{"Linkerd", asksLink[:len(asksLink)-1] + `, config.linkerd.io/skip-inbound-ports: "3000"}`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := Stream([]byte(beside(c.metadata, "", "")), both())
			if err != nil {
				t.Fatal(err)
			}
			noted := slices.ContainsFunc(r.Notes, func(n Note) bool {
				return strings.Contains(n.Text, "lists port 3000, but requests now arrive at port 18080")
			})
			if noted != c.want {
				t.Errorf("noted: %v, want %v: %v", noted, c.want, r.Notes)
			}
		})
	}
}

// The webhook does the same. It may see a Pod that a mesh's webhook has changed. Ports of the
// mesh's container are not the application's.
func TestAPodWithAMeshIsInjected(t *testing.T) {
	port := func(n int) []any {
		return []any{map[string]any{"name": "http", "containerPort": json.Number(strconv.Itoa(n))}}
	}
	for key, want := range map[string]int{"initContainers": 2, "containers": 1} { // position of the sidecar among initContainers
		spec := map[string]any{
			"initContainers": []any{map[string]any{"name": "istio-init"}},
			"containers":     []any{map[string]any{"name": "shop", "ports": port(3000)}},
		}
		spec[key] = append(spec[key].([]any), map[string]any{"name": "istio-proxy", "ports": port(15090)})
		object := map[string]any{"metadata": map[string]any{"annotations": map[string]any{"retryproxy.io/inject": "true"}}, "spec": spec}
		changed, notes, err := Pod(object, Default("retryproxy:1"))
		if err != nil {
			t.Errorf("%s: %v", key, err)
			continue
		}
		list := changed["spec"].(map[string]any)["initContainers"].([]any)
		if name := list[want].(map[string]any)["name"]; name != inboundName {
			t.Errorf("%s: %v at place %d, want %s", key, name, want, inboundName)
		}
		if !slices.ContainsFunc(notes, func(n string) bool { return strings.HasPrefix(n, "Istio also retries") }) {
			t.Errorf("%s: notes %q", key, notes)
		}
	}
}
