package inject

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// pod is a Pod or Pod template during injection.
type pod struct {
	Options                    // including those of its annotations
	template        *yaml.Node // the object with metadata and spec
	metadata, spec  *yaml.Node // metadata may be nil
	namespace, name string     // of the object that contains it; the name includes the kind
	services        []*service
	changed         bool
	notes           []string
	inboundListen   int   // the port of an inbound sidecar; 0 if there is none
	mesh            *mesh // the mesh whose proxy is also in the Pod, or nil
}

// note adds a note for the user that requires no action.
func (p *pod) note(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

// inject makes all requested changes, or reports all that are impossible.
func (p *pod) inject() error {
	if text(get(p.spec, "hostNetwork")) == "true" {
		return errors.New("hostNetwork is not supported: the sidecar's ports would be ports of the node")
	}
	if len(items(get(p.spec, "containers"))) == 0 {
		return errors.New("no containers")
	}
	p.mesh = meshOf(p)
	var errs []error
	if p.inbound() {
		errs = append(errs, prefixed("inbound", p.injectInbound()))
	}
	if p.outbound() {
		errs = append(errs, prefixed("outbound", p.injectOutbound()))
	}
	if p.changed {
		p.describeMesh()
		p.finish()
	}
	return errors.Join(errs...)
}

func prefixed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// finish does what both sides need.
func (p *pod) finish() {
	// The sidecar recognises and ignores the variables of Services named retryproxy..., so the
	// application's service links can stay.
	var sides []string
	if p.container(inboundName) != nil {
		sides = append(sides, "inbound")
	}
	if p.container(outboundName) != nil {
		sides = append(sides, "outbound")
	}
	put(within(within(p.template, "metadata", yaml.MappingNode), "annotations", yaml.MappingNode), annotateInjected, str(strings.Join(sides, ",")))
}

// all returns the Pod's containers, init containers first.
func (p *pod) all() []*yaml.Node {
	return slices.Concat(items(get(p.spec, "initContainers")), items(get(p.spec, "containers")))
}

// applications returns the containers that are neither ours nor the mesh's.
func (p *pod) applications() []*yaml.Node {
	var found []*yaml.Node
	for _, c := range items(get(p.spec, "containers")) {
		if name := text(get(c, "name")); name != inboundName && name != outboundName && !p.mesh.owns(c) && (p.Container == "" || name == p.Container) {
			found = append(found, c)
		}
	}
	return found
}

// container returns the container with that name, or nil.
func (p *pod) container(name string) *yaml.Node {
	for _, c := range p.all() {
		if text(get(c, "name")) == name {
			return c
		}
	}
	return nil
}

// variable returns a value of a container's environment, or "".
func variable(c *yaml.Node, name string) string {
	for _, e := range items(get(c, "env")) {
		if text(get(e, "name")) == name {
			return text(get(e, "value"))
		}
	}
	return ""
}

// free returns the first port from n on that no container declares, no mesh reserves and that is
// not taken.
func (p *pod) free(n int, taken ...int) int {
	for _, c := range p.all() {
		for _, e := range items(get(c, "ports")) {
			taken = append(taken, portOf(text(get(e, "containerPort"))))
		}
		for _, e := range items(get(c, "env")) { // ports of our own containers
			if name := text(get(e, "name")); strings.HasPrefix(name, "RETRYPROXY_") && strings.HasSuffix(name, "LISTEN") {
				taken = append(taken, portOf(text(get(e, "value"))))
			}
		}
	}
	for slices.Contains(taken, n) || p.mesh.reserves(n) {
		n++
	}
	return n
}

// portOf returns the number after the last colon, or 0.
func portOf(address string) int {
	n, _ := strconv.Atoi(address[strings.LastIndexByte(address, ':')+1:])
	return n
}

// labels returns the labels of the template.
func (p *pod) labels() map[string]string { return texts(get(p.metadata, "labels")) }

func texts(n *yaml.Node) map[string]string {
	m := map[string]string{}
	if n != nil && n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = text(n.Content[i+1])
		}
	}
	return m
}

// selects reports whether a selector matches the labels. An empty one matches none.
func selects(selector, labels map[string]string) bool {
	for k, want := range selector {
		if v, ok := labels[k]; !ok || v != want {
			return false
		}
	}
	return len(selector) > 0
}
