package inject

import (
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v4"
)

// service is a Service of the stream.
type service struct {
	name, namespace string
	selector        map[string]string
	headless        bool
	ports           []*servicePort
}

// servicePort is one port of a Service. target is the value in the input; to is the new one, or ""
// if nothing was requested.
type servicePort struct {
	node        *yaml.Node
	name        string
	number      string // its own, where clients reach it
	target      string // a name or a number
	appProtocol string
	to          string // likewise
	by          string // the workload that requested it
}

// newService parses a Service; it returns nil if it selects no Pods.
func newService(object *yaml.Node) *service {
	spec := get(object, "spec")
	s := &service{
		name: text(get(object, "metadata", "name")), namespace: text(get(object, "metadata", "namespace")),
		selector: texts(get(spec, "selector")), headless: text(get(spec, "clusterIP")) == "None",
	}
	if len(s.selector) == 0 || text(get(spec, "type")) == "ExternalName" {
		return nil
	}
	for _, p := range items(get(spec, "ports")) {
		if protocol := text(get(p, "protocol")); protocol != "" && protocol != "TCP" {
			continue
		}
		target := text(get(p, "targetPort"))
		if target == "" {
			target = text(get(p, "port"))
		}
		s.ports = append(s.ports, &servicePort{node: p, name: text(get(p, "name")), number: text(get(p, "port")), target: target, appProtocol: text(get(p, "appProtocol"))})
	}
	return s
}

// retarget sets the port's target. It is an error if two workloads need different ones.
func (p *servicePort) retarget(s *service, to, by string) error {
	if p.to != "" && p.to != to {
		return fmt.Errorf("the Service %s: %s needs the port %s, %s the port %s: give the containers' ports the same name, and let the Service target that", s.name, p.by, p.to, by, to)
	}
	p.to, p.by = to, by
	return nil
}

// target returns a node with a port's name or number.
func target(port string) *yaml.Node {
	if n, err := strconv.Atoi(port); err == nil {
		return number(n)
	}
	return build(port)
}

// apply writes the targets set by retarget, and reports whether that changed anything.
func (s *service) apply() (changed bool) {
	for _, p := range s.ports {
		if p.to == "" || p.target == p.to {
			continue
		}
		put(p.node, "targetPort", target(p.to))
		changed = true
	}
	return changed
}
