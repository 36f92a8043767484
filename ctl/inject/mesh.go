package inject

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// mesh is a service mesh whose proxy is or will be in the Pod.
type mesh struct {
	name       string
	containers []string // containers of the mesh
	proxy      string   // the one that forwards requests
	ports      []int    // ports of the proxy
	first      int      // the lowest of its ports
	last       int
	retries    string // advice about its retries
	// lists are the annotations that list ports to redirect to the proxy or to exclude.
	lists []string
}

// layeredRetries is how sidecars beside a mesh treat a request that the mesh's proxy retries: they
// send it once. The retries of both then add up; any other choice multiplies them.
const layeredRetries = "deny"

var (
	istio = mesh{
		name:       "Istio",
		containers: []string{"istio-init", "istio-validation", "istio-proxy"},
		proxy:      "istio-proxy",
		ports:      []int{15000, 15001, 15002, 15004, 15006, 15008, 15009, 15020, 15021, 15053, 15090},
		first:      15000, last: 15090,
		retries: "Istio retries twice by default: turn its retries off for requests through retryproxy (VirtualService, retries.attempts: 0)",
		lists:   []string{"traffic.sidecar.istio.io/includeInboundPorts", "traffic.sidecar.istio.io/excludeInboundPorts"},
	}
	linkerd = mesh{
		name:       "Linkerd",
		containers: []string{"linkerd-init", "linkerd-network-validator", "linkerd-proxy"},
		proxy:      "linkerd-proxy",
		ports:      []int{4140, 4143, 4190, 4191},
		first:      4140, last: 4191,
		retries: "Linkerd retries only if a Service or route has the annotation retry.linkerd.io/http or retry.linkerd.io/grpc: do not set these for requests through retryproxy",
		lists:   []string{"config.linkerd.io/skip-inbound-ports"},
	}
)

// linkerdPorts are the annotations that change a port of Linkerd's proxy.
var linkerdPorts = []string{"inbound-port", "outbound-port", "control-port", "admin-port"}

// meshOf returns the mesh of the Pod, or nil. Annotations and labels of the namespace are unknown
// here; only those of the Pod itself count.
func meshOf(p *pod) *mesh {
	says := func(key string) string {
		return strings.ToLower(text(get(p.metadata, "annotations", key)) + text(get(p.metadata, "labels", key)))
	}
	has := func(m *mesh) bool {
		return slices.ContainsFunc(p.all(), func(c *yaml.Node) bool { return m.owns(c) })
	}
	isIstio := says("sidecar.istio.io/inject") == "true" || says("istio.io/dataplane-mode") == "ambient" ||
		says("istio.io/rev") != "" && says("sidecar.istio.io/inject") != "false"
	switch linkerdSays := says("linkerd.io/inject"); {
	case isIstio || has(&istio):
		return &istio
	case linkerdSays == "enabled" || linkerdSays == "ingress" || has(&linkerd):
		m := linkerd
		for _, key := range linkerdPorts {
			if n, err := strconv.Atoi(says("config.linkerd.io/" + key)); err == nil {
				m.ports = append(slices.Clone(m.ports), n)
			}
		}
		return &m
	}
	return nil
}

// owns reports whether the container belongs to the mesh.
func (m *mesh) owns(c *yaml.Node) bool {
	return m != nil && slices.Contains(m.containers, text(get(c, "name")))
}

// uses reports whether the mesh's proxy uses the port.
func (m *mesh) uses(port int) bool { return m != nil && slices.Contains(m.ports, port) }

// reserves reports whether the port is in the range of the mesh's proxy, which may use others of it
// in another version.
func (m *mesh) reserves(port int) bool {
	return m.uses(port) || m != nil && port >= m.first && port <= m.last
}

// settings returns the settings that a sidecar gets beside the mesh.
func (m *mesh) settings(o *Options) []Setting {
	if m == nil || o.ConfigMap != "" { // a setting must not be both in the environment and in the file
		return nil
	}
	return []Setting{{"RETRYPROXY_LAYERED_RETRIES", layeredRetries}}
}

// describeMesh adds notes about having two proxies in one Pod.
func (p *pod) describeMesh() {
	m := p.mesh
	if m == nil {
		return
	}
	p.note("%s also retries, so both may retry a request. %s", m.name, m.retries)
	if p.ConfigMap != "" {
		p.note("set RETRYPROXY_LAYERED_RETRIES=%s in the ConfigMap %s: then retries by %s are not retried again", layeredRetries, p.ConfigMap, m.name)
	}
	for _, c := range items(get(p.spec, "containers")) {
		if text(get(c, "name")) == m.proxy {
			p.note("container %s is not a native sidecar: it may end before retryproxy has drained. Configure %s to make it one", m.proxy, m.name)
		}
	}
}

// describeMeshPorts adds a note if a list of ports contains the application's port but not the
// sidecar's.
func (p *pod) describeMeshPorts(app, listen int) {
	if p.mesh == nil {
		return
	}
	for _, key := range p.mesh.lists {
		ports := fields(text(get(p.metadata, "annotations", key)))
		if slices.Contains(ports, strconv.Itoa(app)) && !slices.Contains(ports, strconv.Itoa(listen)) {
			p.note("annotation %s lists port %d, but requests now arrive at port %d: add it to the annotation", key, app, listen)
		}
	}
}

// meshCollision returns an error if the mesh's proxy uses the port, or nil.
func (p *pod) meshCollision(what string, port int, taken bool) error {
	if !taken {
		return nil
	}
	return fmt.Errorf("%s: port %d belongs to %s's proxy: choose another", what, port, p.mesh.name)
}
