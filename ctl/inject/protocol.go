package inject

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// The protocols that an upstream without TLS may speak, as the schemes of its URL. An upstream with TLS
// says by ALPN what it speaks.
const (
	protocolHTTP = "http" // HTTP/1.1
	protocolH2C  = "h2c"  // HTTP/2 by prior knowledge, as gRPC needs it
)

var protocols = []string{protocolHTTP, protocolH2C}

// fact is what a manifest or an option says about the protocol of a port.
type fact struct {
	protocol  string // "" if it says nothing
	source    string // a clause for messages
	cleartext bool   // it also says that there is no TLS
}

// agreed returns the first of the facts that says something, or none. It is an error if another one
// says something else.
func agreed(facts []fact) (fact, error) {
	var said fact
	for _, f := range facts {
		switch {
		case f.protocol == "":
		case said.protocol == "":
			said = f
		case said.protocol != f.protocol:
			return fact{}, fmt.Errorf("%s, which means %s, but %s, which means %s: change one of them", said.source, said.protocol, f.source, f.protocol)
		}
	}
	return said, nil
}

// protocolOfName returns what the name of a port says. A server of gRPC-Web may speak either.
func protocolOfName(name string) string {
	switch {
	case strings.HasPrefix(name, "grpc-web"):
		return ""
	case strings.HasPrefix(name, "grpc"), strings.HasPrefix(name, "h2c"):
		return protocolH2C
	}
	return ""
}

// protocolOf returns what the appProtocol of a Service says, and whether it says that there is no TLS.
func protocolOf(appProtocol string) (protocol string, cleartext bool) {
	switch appProtocol {
	case "kubernetes.io/h2c", "h2c":
		return protocolH2C, true
	case "grpc", "http2": // names of meshes
		return protocolH2C, false
	case "http", "HTTP", "kubernetes.io/ws":
		return protocolHTTP, true
	}
	return "", false
}

// facts returns what a port of a Service says about its protocol.
func (sp *servicePort) facts(s *service) []fact {
	protocol, cleartext := protocolOf(sp.appProtocol)
	return []fact{
		{protocol, fmt.Sprintf("the Service %s has appProtocol: %s", s.name, sp.appProtocol), cleartext},
		{protocolOfName(sp.name), fmt.Sprintf("the Service %s names its port %s", s.name, sp.name), false},
	}
}

// inboundProtocol returns what is known about the protocol of the application's port.
func (p *pod) inboundProtocol(app appPort) (fact, error) {
	facts := []fact{{p.InboundProtocol, "--inbound-protocol (annotation retryproxy.io/inbound-protocol) is " + p.InboundProtocol, true}}
	for _, c := range p.all() {
		for _, probe := range []string{"livenessProbe", "readinessProbe", "startupProbe"} {
			if text(get(c, probe, "grpc", "port")) == fmt.Sprint(app.number) {
				facts = append(facts, fact{protocolH2C, fmt.Sprintf("the %s of the container %s is grpc", probe, text(get(c, "name"))), true})
			}
		}
	}
	facts = append(facts, fact{protocolOfName(app.name), fmt.Sprintf("the port %d has the name %s", app.number, app.name), false})
	for s, sp := range p.targeting() {
		if sp.leadsTo(app) {
			facts = append(facts, sp.facts(s)...)
		}
	}
	said, err := agreed(facts)
	if err != nil {
		return fact{}, fmt.Errorf("port %d: %w", app.number, err)
	}
	return said, nil
}

// leadsTo reports whether the port of a Service targets the application's port.
func (sp *servicePort) leadsTo(app appPort) bool {
	return app.name != "" && sp.target == app.name || sp.target == fmt.Sprint(app.number)
}

// upstreamURL returns the URL of an upstream that is known as scheme://host, where https is certain and
// http is not, unless said says so. what names it in messages.
func (p *pod) upstreamURL(what, scheme, host string, said ...fact) (string, error) {
	facts := slices.Concat(said, p.serviceFacts(host, scheme))
	if scheme == "https" {
		for _, f := range facts {
			if f.protocol != "" && f.cleartext {
				return "", fmt.Errorf("%s is https, but %s, which means %s without TLS: change one of them", what, f.source, f.protocol)
			}
		}
		return scheme + "://" + host, nil
	}
	f, err := agreed(facts)
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", what, err)
	case f.protocol == protocolH2C:
		scheme = protocolH2C
	case scheme == "" && f.protocol == "":
		return "", fmt.Errorf("%s=%s is not an http:// or https:// URL; if it is a gRPC server, add --outbound-protocol %s=h2c (annotation retryproxy.io/outbound-protocol)", what, host, what)
	default:
		scheme = protocolHTTP
	}
	if scheme == protocolH2C && !slices.Contains(said, f) {
		p.note("%s: the upstream gets HTTP/2 without TLS (h2c), because %s", what, f.source)
	}
	return scheme + "://" + host, nil
}

// serviceFacts returns what a Service of the stream with that host and port says.
func (p *pod) serviceFacts(host, scheme string) (facts []fact) {
	u, err := url.Parse("//" + host)
	if err != nil {
		return nil
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443"}[scheme]
		if port == "" {
			port = "80"
		}
	}
	for _, s := range p.services {
		if !s.isCalled(strings.TrimSuffix(u.Hostname(), "."), p.namespace) {
			continue
		}
		for _, sp := range s.ports {
			if sp.number == port {
				facts = append(facts, sp.facts(s)...)
			}
		}
	}
	return facts
}

// isCalled reports whether a name means the Service for a Pod of that namespace. A namespace that a
// manifest leaves out is only known to be the same for all that leave it out.
func (s *service) isCalled(name, from string) bool {
	short, rest, _ := strings.Cut(name, ".")
	namespace, domain, _ := strings.Cut(rest, ".")
	switch {
	case short != s.name:
		return false
	case rest == "":
		return s.namespace == from
	}
	return namespace == s.namespace && (domain == "" || domain == "svc" || strings.HasPrefix(domain, "svc."))
}

// address is the value of a variable that holds the address of a remote service.
type address struct {
	prefix string   // dns:/// of a gRPC target, or ""
	url    *url.URL // nil if the value is host:port
	host   string   // host[:port]
}

// parseAddress parses an http:// or https:// URL, or host:port as gRPC writes it.
func parseAddress(value string) (address, bool) {
	if u, err := url.Parse(value); err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") {
		return address{url: u, host: u.Host}, true
	}
	a := address{host: value}
	if host, is := strings.CutPrefix(value, "dns:///"); is {
		a.prefix, a.host = "dns:///", host
	}
	u, err := url.Parse("//" + a.host)
	return a, err == nil && u.Host == a.host && u.Hostname() != "" && u.Port() != "" && !strings.ContainsAny(a.host, "@/?#")
}

// scheme returns http, https, or "" for host:port.
func (a address) scheme() string {
	if a.url == nil {
		return ""
	}
	return a.url.Scheme
}

// at returns the value with another address, without TLS.
func (a address) at(host string) string {
	if a.url == nil {
		return a.prefix + host
	}
	to := *a.url
	to.Scheme, to.Host = "http", host
	return to.String()
}

// Protocol says which protocol the remote service speaks whose address a variable holds.
type Protocol struct{ Name, Protocol string }

// parseProtocol parses NAME=PROTOCOL.
func parseProtocol(s string) (Protocol, error) {
	name, protocol, found := strings.Cut(s, "=")
	p := Protocol{name, protocol}
	if !found || name == "" {
		return p, fmt.Errorf("outbound protocol %q: expected NAME=%s", s, strings.Join(protocols, " or NAME="))
	}
	return p, p.check()
}

func (p Protocol) check() error {
	if !slices.Contains(protocols, p.Protocol) {
		return fmt.Errorf("outbound protocol of %s: %q: expected %s", p.Name, p.Protocol, strings.Join(protocols, " or "))
	}
	return nil
}

// saidProtocol returns the option for a variable, as a fact.
func (o *Options) saidProtocol(name string) fact {
	for _, p := range o.OutboundProtocols {
		if p.Name == name {
			return fact{p.Protocol, fmt.Sprintf("--outbound-protocol (annotation retryproxy.io/outbound-protocol) is %s=%s", name, p.Protocol), true}
		}
	}
	return fact{}
}

// sendsBy reports whether a container of ours sends to an upstream by this protocol.
func sendsBy(sidecar *yaml.Node, protocol string) bool {
	return strings.HasPrefix(variable(sidecar, "RETRYPROXY_UPSTREAM"), protocol+"://")
}
