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

// servicePort is one of its ports. Its target is as it was in the input;
// listen is what it is to be, 0 while it stays.
type servicePort struct {
	node        *yaml.Node
	target      string // a name or a number
	appProtocol string
	listen      int
	by          string // the workload that wanted listen
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

// lead points the port at the sidecar. Two workloads that want it elsewhere
// contradict each other.
func (p *servicePort) lead(s *service, listen int, by string) error {
	if p.listen != 0 && p.listen != listen {
		return fmt.Errorf("the Service %s: %s needs the port %d, %s the port %d: give the port of the containers a name, and let the Service target it", s.name, p.by, p.listen, by, listen)
	}
	p.listen, p.by = listen, by
	return nil
}

// apply writes what lead decided, and reports whether that changed anything.
func (s *service) apply() (changed bool) {
	for _, p := range s.ports {
		if p.listen == 0 || p.target == strconv.Itoa(p.listen) {
			continue
		}
		put(p.node, "targetPort", number(p.listen))
		changed = true
	}
	return changed
}
