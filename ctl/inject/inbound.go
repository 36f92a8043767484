package inject

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// appPort is the application's port behind the sidecar.
type appPort struct {
	container *yaml.Node // nil if no container declares it
	entry     *yaml.Node // of the container's ports; nil likewise
	name      string     // "" if it has no name
	number    int
}

// isReferenced reports whether something can use the entry by its name or its host port. Then the
// entry stays in the application's container and gets the sidecar's number.
func (a *appPort) isReferenced() bool {
	return a.name != "" || get(a.entry, "hostPort") != nil
}

func (p *pod) injectInbound() error {
	if there := p.container(inboundName); there != nil {
		return p.keepInbound(there)
	}
	app, err := p.findPort()
	if err != nil {
		return err
	}
	if err := p.meshCollision("the application", app.number, p.mesh.uses(app.number)); err != nil {
		return err
	}
	protocol, err := p.inboundProtocol(app)
	if err != nil {
		return err
	}
	listen := p.free(inboundPort)
	if err := p.routeToSidecar(app, listen); err != nil {
		return err
	}
	admin := p.free(inboundAdminPort, listen)
	env := merged(
		p.common(fmt.Sprintf(":%d", listen), admin),
		[]Setting{
			{"RETRYPROXY_UPSTREAM", fmt.Sprintf("%s://127.0.0.1:%d", cmp.Or(protocol.protocol, protocolHTTP), app.number)},
			{"RETRYPROXY_DRAIN_DELAY", drainDelay.String()}, {"RETRYPROXY_DRAIN_TIMEOUT", drainTimeout.String()},
		}, p.mesh.settings(&p.Options), p.Settings, p.InboundSettings)
	if err := validate(env); err != nil {
		return err
	}
	if protocol.protocol == protocolH2C && p.InboundProtocol == "" {
		p.note("port %d of the application gets HTTP/2 without TLS (h2c), because %s", app.number, protocol.source)
	}
	ports := []port{{"rp-admin", admin}}
	if !app.isReferenced() {
		ports = []port{{"rp-http", listen}, {"rp-admin", admin}}
	}
	c := p.sidecar(inboundName, env, ports...)
	put(c, "lifecycle", fromYAML(drainHookYAML))
	p.delayShutdown(app, admin)
	p.describeMeshPorts(app.number, listen)
	p.add(c)
	p.inboundListen, p.changed = listen, true
	return nil
}

// keepInbound leaves an existing sidecar unchanged, and points Services that were added to the
// stream later at it.
func (p *pod) keepInbound(there *yaml.Node) error {
	listen, app := portOf(variable(there, "RETRYPROXY_LISTEN")), portOf(variable(there, "RETRYPROXY_UPSTREAM"))
	if listen == 0 || app == 0 {
		return fmt.Errorf("the container %s has no RETRYPROXY_LISTEN and RETRYPROXY_UPSTREAM with ports, so it was not injected by retryproxy", inboundName)
	}
	p.inboundListen = listen
	name := ""
	for _, a := range p.declared() {
		if a.number == listen {
			name = a.name
		}
	}
	if said, err := p.inboundProtocol(appPort{name: name, number: app}); err == nil && said.protocol != "" && !sendsBy(there, said.protocol) {
		p.note("the existing container %s sends %s, but %s: remove that container and inject again", inboundName, variable(there, "RETRYPROXY_UPSTREAM"), said.source)
	}
	for s, sp := range p.targeting() {
		if sp.target == strconv.Itoa(app) {
			if err := p.retargetNumber(s, sp, appPort{name: name, number: app}, listen); err != nil {
				return err
			}
		}
	}
	return nil
}

// retargetNumber makes a Service that targets the application's port by number reach the sidecar.
// During a rollout, Pods with and without a sidecar must be served. If the port has a name, the
// Service targets that, since it is a different number in each. Otherwise the Service keeps
// targeting the application's number until all Pods have a sidecar.
func (p *pod) retargetNumber(s *service, sp *servicePort, app appPort, listen int) error {
	switch {
	case app.name != "":
		return sp.retarget(s, app.name, p.name)
	case p.LeadServices:
		return sp.retarget(s, strconv.Itoa(listen), p.name)
	}
	p.note("Service %s still targets port %d and bypasses the sidecar, because Pods without a sidecar serve only that port. When all Pods have one (kubectl rollout status), "+
		"inject with --lead-services (annotation retryproxy.io/lead-services: \"true\") from then on. A port with a name needs no second step", s.name, app.number)
	return sp.retarget(s, strconv.Itoa(app.number), p.name)
}

// targeting iterates over the ports of Services in the stream that select this Pod.
func (p *pod) targeting() func(yield func(*service, *servicePort) bool) {
	return func(yield func(*service, *servicePort) bool) {
		for _, s := range p.services {
			if s.namespace != p.namespace || !selects(s.selector, p.labels()) {
				continue
			}
			for _, sp := range s.ports {
				if !yield(s, sp) {
					return
				}
			}
		}
	}
}

// hasPort reports whether the sidecar uses the port, or a container has a port of that name.
func (p *pod) hasPort(port string) bool {
	return port == strconv.Itoa(p.inboundListen) || slices.ContainsFunc(p.declared(), func(a appPort) bool { return a.name == port })
}

// findPort determines the application's port.
func (p *pod) findPort() (appPort, error) {
	declared := p.declared()
	if p.InboundPort != "" {
		return p.named(p.InboundPort, declared)
	}
	var targets []string
	for _, sp := range p.targeting() {
		if !slices.Contains(targets, sp.target) {
			targets = append(targets, sp.target)
		}
	}
	var chosen []appPort
	for _, t := range targets {
		a, err := p.named(t, declared)
		if err != nil {
			return a, err
		}
		if !slices.ContainsFunc(chosen, func(c appPort) bool { return c.number == a.number }) {
			chosen = append(chosen, a)
		}
	}
	if len(targets) == 0 {
		chosen = declared
	}
	switch len(chosen) {
	case 0:
		return appPort{}, errors.New("no container declares a TCP port and no Service in the input targets one: choose one with --inbound-port (annotation retryproxy.io/inbound-port)")
	case 1:
		return chosen[0], nil
	}
	return appPort{}, fmt.Errorf("there are several ports (%s): choose one with --inbound-port (annotation retryproxy.io/inbound-port)", describe(chosen))
}

func describe(ports []appPort) string {
	var words []string
	for _, a := range ports {
		words = append(words, strings.TrimPrefix(fmt.Sprintf("%s %d", a.name, a.number), " "))
	}
	return strings.Join(words, ", ")
}

// declared returns the TCP ports of the application's containers.
func (p *pod) declared() []appPort {
	var found []appPort
	for _, c := range p.applications() {
		for _, e := range items(get(c, "ports")) {
			n, err := strconv.Atoi(text(get(e, "containerPort")))
			if protocol := text(get(e, "protocol")); err == nil && (protocol == "" || protocol == "TCP") {
				found = append(found, appPort{c, e, text(get(e, "name")), n})
			}
		}
	}
	return found
}

// named returns the port with that name or number. A number need not be declared.
func (p *pod) named(port string, declared []appPort) (appPort, error) {
	n, err := strconv.Atoi(port)
	for _, a := range declared {
		if a.name == port || err == nil && a.number == n {
			return a, nil
		}
	}
	if err != nil || n < 1 || n > 65535 {
		return appPort{}, fmt.Errorf("no container has a port named %q", port)
	}
	return appPort{number: n}, nil
}

// routeToSidecar makes requests for the application's port reach the sidecar.
func (p *pod) routeToSidecar(app appPort, listen int) error {
	led := false
	for s, sp := range p.targeting() {
		byName, byNumber := app.name != "" && sp.target == app.name, sp.target == strconv.Itoa(app.number)
		if !byName && !byNumber {
			continue
		}
		if tls := sp.appProtocol; tls == "https" || strings.HasSuffix(tls, "/wss") {
			return fmt.Errorf("the Service %s has appProtocol: %s, but the sidecar accepts plain HTTP only", s.name, tls)
		}
		if s.headless {
			p.note("Service %s is headless: clients that use its name with the application's port %d bypass the sidecar, whose port is %d", s.name, app.number, listen)
		}
		if byNumber {
			if err := p.retargetNumber(s, sp, app, listen); err != nil {
				return err
			}
		}
		led = true
	}
	switch {
	case !led && app.name != "":
		p.note("no Service in the input targets port %s: a Service that targets the name uses the sidecar, one that targets the number %d bypasses it", app.name, app.number)
	case !led && !p.ServiceElsewhere:
		return fmt.Errorf("port %d has no name and no Service in the input targets it, so no traffic would use the sidecar: "+
			"give the port a name that the Service targets, or put the Service into the same input, or point its targetPort at %d yourself and add --service-elsewhere (annotation retryproxy.io/service-elsewhere: \"true\")", app.number, listen)
	}
	if app.isReferenced() {
		p.declareSidecarPort(app, listen)
	}
	return nil
}

// declareSidecarPort sets the port's entry to the sidecar's number. The name stays in the application's
// container: Services before Kubernetes 1.33 do not find a named port of a native sidecar
// (kubernetes/kubernetes#127958). Hooks and probes of the application that use the name still reach
// the application.
func (p *pod) declareSidecarPort(app appPort, listen int) {
	for _, hook := range [][]string{{"livenessProbe"}, {"readinessProbe"}, {"startupProbe"}, {"lifecycle", "postStart"}, {"lifecycle", "preStop"}} {
		for _, kind := range []string{"httpGet", "tcpSocket"} {
			if action := get(get(app.container, hook...), kind); app.name != "" && text(get(action, "port")) == app.name {
				put(action, "port", number(app.number))
			}
		}
	}
	put(app.entry, "containerPort", number(listen))
	ports := get(app.container, "ports")
	at := slices.Index(ports.Content, app.entry)
	ports.Content = slices.Insert(ports.Content, at+1, build(map[string]int{"containerPort": app.number}))
}

// raiseGracePeriod makes the Pod's grace period at least gracePeriod, and returns the one that it
// replaced, or "".
func (p *pod) raiseGracePeriod() (before string) {
	const key = "terminationGracePeriodSeconds"
	before = text(get(p.spec, key))
	if grace, err := strconv.Atoi(before); err == nil && grace >= gracePeriod {
		return ""
	}
	put(p.spec, key, number(gracePeriod))
	return before
}

// delayShutdown gives the Pod enough time for the sidecar to drain. It adds a hook to the application
// that asks the sidecar whether it has drained. The application gets no SIGTERM before that,
// however slow its responses are.
func (p *pod) delayShutdown(app appPort, admin int) {
	if before := p.raiseGracePeriod(); before != "" {
		p.note("terminationGracePeriodSeconds raised from %s to %d: drain delay and drain take 25 s", before, gracePeriod)
	}
	c := app.container
	if c == nil {
		if all := p.applications(); len(all) == 1 {
			c = all[0]
		}
	}
	hook := fmt.Sprintf("httpGet of /drained on port %d", admin)
	switch {
	case c == nil:
		p.note("the application must accept requests until the sidecar has drained (a preStop: %s); its container is unknown, because none declares port %d", hook, app.number)
	case get(c, "lifecycle", "preStop") != nil:
		p.note("container %s already has a preStop: it must last %d s, or %d s if the application ends at once at SIGTERM, because the sidecar forwards requests meanwhile; "+
			"without a preStop of its own it would get %s, which lasts as long as needed", text(get(c, "name")), appLasts, drainLasts, hook)
	default:
		put(within(c, "lifecycle", yaml.MappingNode), "preStop", build(map[string]any{"httpGet": map[string]any{"path": "/drained", "port": admin}}))
	}
}
