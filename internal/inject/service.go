package inject

import (
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// service is a Service of the stream.
type service struct {
	name, namespace string
	selector        map[string]string
	headless        bool
	ports           []*servicePort
}

// servicePort is one of its ports. Its target is as it was in the input; to is
// what it is to be, "" while nobody asked.
type servicePort struct {
	node        *yaml.Node
	target      string // a name or a number
	appProtocol string
	to          string // likewise
	by          string // the workload that wanted it
}

// newService reads a Service; nil when it selects no Pods.
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
		s.ports = append(s.ports, &servicePort{node: p, target: target, appProtocol: text(get(p, "appProtocol"))})
	}
	return s
}

// lead gives the port a target. Two workloads that want different ones contradict
// each other.
func (p *servicePort) lead(s *service, to, by string) error {
	if p.to != "" && p.to != to {
		return fmt.Errorf("the Service %s: %s needs the port %s, %s the port %s: give the ports of the containers one name, and let the Service target it", s.name, p.by, p.to, by, to)
	}
	p.to, p.by = to, by
	return nil
}

// target is a port's name or number.
func target(port string) *yaml.Node {
	if n, err := strconv.Atoi(port); err == nil {
		return number(n)
	}
	return build(port)
}

// apply writes what lead decided, and reports whether that changed anything.
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
