package inject

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// remote is one remote service behind the outbound sidecar.
type remote struct {
	name     string // for the name of a route
	listen   int
	upstream string // scheme://host[:port]
}

func (p *pod) injectOutbound() error {
	if there := p.container(outboundName); there != nil {
		return p.keepOutbound(there)
	}
	var remotes []remote
	var errs []error
	var edits []func() // applied if all of them are possible
	taken := []int{p.inboundListen}
	for _, name := range p.OutboundEnv {
		r := remote{name: name, listen: p.free(outboundPort, taken...)}
		taken = append(taken, r.listen)
		upstream, edit, err := p.pointVariable(name, r.listen)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		r.upstream = upstream
		remotes, edits = append(remotes, r), append(edits, edit)
	}
	for _, h := range p.OutboundHosts {
		if err := p.checkAlias(h, taken); err != nil {
			errs = append(errs, err)
			continue
		}
		upstream, err := p.aliasUpstream(h)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		taken = append(taken, h.Port)
		remotes = append(remotes, remote{h.Host, h.Port, upstream})
		edits = append(edits, func() { p.alias(h) })
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	admin := p.free(outboundAdminPort, taken...)
	env := p.outboundEnv(remotes, admin)
	if err := validate(env); err != nil {
		return err
	}
	for _, edit := range edits {
		edit()
	}
	// No preStop: the application may call out until it has ended, and a native sidecar gets SIGTERM after that.
	p.add(p.sidecar(outboundName, env, port{"rp-out-admin", admin}))
	p.changed = true
	return nil
}

// keepOutbound leaves an existing sidecar unchanged if it serves everything that is requested.
func (p *pod) keepOutbound(there *yaml.Node) error {
	listens := map[int]bool{}
	for _, e := range items(get(there, "env")) {
		if name := text(get(e, "name")); strings.HasSuffix(name, "LISTEN") && name != "RETRYPROXY_ADMIN_LISTEN" {
			listens[portOf(text(get(e, "value")))] = true
		}
	}
	var errs []error
	for _, name := range p.OutboundEnv {
		for _, e := range p.variables(name) {
			at, ok := parseAddress(text(get(e, "value")))
			if !ok || !isLoopback(at.host) || !listens[portOf(at.host)] {
				errs = append(errs, fmt.Errorf("%s does not point to the existing container %s: remove that container and inject again", name, outboundName))
			}
		}
	}
	for _, h := range p.OutboundHosts {
		if !listens[h.Port] {
			errs = append(errs, fmt.Errorf("host %s: the existing container %s does not listen on port %d: remove that container and inject again", h.Host, outboundName, h.Port))
		}
	}
	return errors.Join(errs...)
}

// aliasUpstream returns the upstream of a name. Its scheme is said by whoever names it.
func (p *pod) aliasUpstream(h HostAlias) (string, error) {
	u, err := url.Parse(h.Upstream)
	if err != nil {
		return "", err
	}
	return p.upstreamURL("host "+h.Host, u.Scheme, u.Host, fact{map[string]string{"http": protocolHTTP, "h2c": protocolH2C}[u.Scheme], "its upstream is " + h.Upstream, true})
}

// isLoopback reports whether host[:port] is in this Pod.
func isLoopback(host string) bool {
	u, err := url.Parse("//" + host)
	if err != nil || u.Hostname() == "localhost" {
		return err == nil
	}
	a, err := netip.ParseAddr(u.Hostname())
	return err == nil && a.IsLoopback()
}

// outboundEnv returns the sidecar's settings: the first remote service is the default route, each further one
// a route with its own listener.
func (p *pod) outboundEnv(remotes []remote, admin int) []Setting {
	listen := func(r remote) string { return fmt.Sprintf("127.0.0.1:%d", r.listen) } // reachable only from this Pod
	env := p.common(listen(remotes[0]), admin)
	env = append(env, Setting{"RETRYPROXY_UPSTREAM", remotes[0].upstream})
	var names []string
	var routes []Setting
	for _, r := range remotes[1:] {
		name := routeName(r.name, names)
		names = append(names, name)
		prefix := "RETRYPROXY_ROUTE_" + strings.ToUpper(name) + "_"
		routes = append(routes, Setting{prefix + "LISTEN", listen(r)}, Setting{prefix + "UPSTREAM", r.upstream})
	}
	if len(names) > 0 {
		env = append(append(env, Setting{"RETRYPROXY_ROUTES", strings.Join(names, ",")}), routes...)
	}
	env = append(env, Setting{"RETRYPROXY_DRAIN_TIMEOUT", outboundEnd.String()})
	return merged(env, p.mesh.settings(&p.Options), p.Settings, p.OutboundSettings)
}

// routeName returns a name of letters and digits that is not taken.
func routeName(s string, taken []string) string {
	base := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(s))
	if base == "" || base == "default" {
		base = "out" + base
	}
	name := base
	for n := 2; slices.Contains(taken, name); n++ {
		name = fmt.Sprintf("%s%d", base, n)
	}
	return name
}

// variables returns the entries with that name in the environments of the containers that can use
// the sidecar.
func (p *pod) variables(name string) []*yaml.Node {
	containers := p.applications()
	for _, c := range items(get(p.spec, "initContainers")) { // the sidecar runs before they start
		if n := text(get(c, "name")); n != inboundName && n != outboundName && (p.Container == "" || n == p.Container) {
			containers = append(containers, c)
		}
	}
	var found []*yaml.Node
	for _, c := range containers {
		for _, e := range items(get(c, "env")) {
			if text(get(e, "name")) == name {
				found = append(found, e)
			}
		}
	}
	return found
}

// pointVariable reads the upstream from the variable's URL. edit points the variable at the
// sidecar; path, query and user are kept.
func (p *pod) pointVariable(name string, listen int) (upstream string, edit func(), err error) {
	entries := p.variables(name)
	if len(entries) == 0 {
		return "", nil, p.noVariable(name)
	}
	value := text(get(entries[0], "value"))
	for _, e := range entries {
		switch {
		case get(e, "valueFrom") != nil:
			return "", nil, fmt.Errorf("%s has a valueFrom, which cannot be read here: write the URL itself into it, or use --outbound-host", name)
		case text(get(e, "value")) != value:
			return "", nil, fmt.Errorf("%s differs between the containers: choose one with --container (annotation retryproxy.io/container)", name)
		}
	}
	at, ok := parseAddress(value)
	switch {
	case strings.Contains(value, "$("):
		return "", nil, fmt.Errorf("%s=%s refers to other variables, which cannot be read here: write the URL itself into it", name, value)
	case !ok:
		return "", nil, fmt.Errorf("%s=%s is not an http:// or https:// URL, nor host:port", name, value)
	case isLoopback(at.host):
		return "", nil, fmt.Errorf("%s=%s already points to this Pod", name, value)
	}
	upstream, err = p.upstreamURL(name, at.scheme(), at.host, p.saidProtocol(name))
	if err != nil {
		return "", nil, err
	}
	to := at.at(fmt.Sprintf("127.0.0.1:%d", listen))
	return upstream, func() {
		for _, e := range entries {
			put(e, "value", str(to))
		}
	}, nil
}

func (p *pod) noVariable(name string) error {
	for _, c := range p.applications() {
		if len(items(get(c, "envFrom"))) > 0 {
			return fmt.Errorf("no container sets %s; it may come from envFrom, which cannot be read here: write the URL itself into it, or use --outbound-host", name)
		}
	}
	return fmt.Errorf("no container sets %s", name)
}

// checkAlias returns an error if the name cannot be pointed at loopback.
func (p *pod) checkAlias(h HostAlias, taken []int) error {
	if err := p.meshCollision("host "+h.Host, h.Port, p.mesh.reserves(h.Port)); err != nil {
		return err
	}
	if slices.Contains(taken, h.Port) || p.free(h.Port) != h.Port {
		return fmt.Errorf("host %s: port %d is in use in this Pod", h.Host, h.Port)
	}
	for _, a := range items(get(p.spec, "hostAliases")) {
		for _, name := range items(get(a, "hostnames")) {
			if text(name) == h.Host && text(get(a, "ip")) != "127.0.0.1" {
				return fmt.Errorf("host %s: hostAliases already points it at %s", h.Host, text(get(a, "ip")))
			}
		}
	}
	return nil
}

// alias points the name at loopback, for all containers of the Pod.
func (p *pod) alias(h HostAlias) {
	list := within(p.spec, "hostAliases", yaml.SequenceNode)
	i := slices.IndexFunc(list.Content, func(a *yaml.Node) bool { return text(get(a, "ip")) == "127.0.0.1" })
	if i < 0 {
		list.Content = append(list.Content, build(map[string]string{"ip": "127.0.0.1"}))
		i = len(list.Content) - 1
	}
	names := within(list.Content[i], "hostnames", yaml.SequenceNode)
	if !slices.ContainsFunc(names.Content, func(n *yaml.Node) bool { return text(n) == h.Host }) {
		names.Content = append(names.Content, str(h.Host))
	}
	if h.Port < 1024 {
		p.unprivileged(h.Port)
	}
}

// unprivileged lets the sidecar, which does not run as root, listen below 1024. The sysctl is one
// of Kubernetes' safe ones and affects only this Pod.
func (p *pod) unprivileged(port int) {
	const name = "net.ipv4.ip_unprivileged_port_start"
	list := within(within(p.spec, "securityContext", yaml.MappingNode), "sysctls", yaml.SequenceNode)
	for _, s := range list.Content {
		if text(get(s, "name")) == name {
			if v, err := strconv.Atoi(text(get(s, "value"))); err == nil && v > port {
				put(s, "value", str(strconv.Itoa(port)))
			}
			return
		}
	}
	list.Content = append(list.Content, build(Setting{name, strconv.Itoa(port)}))
}
