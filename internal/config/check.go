package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/retryproxy/retryproxy/proxy/route"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// check looks for settings that are valid individually but not together. An error is a setting that
// can never have its documented effect. A warning is a setting that is probably a mistake.
func (s *Settings) check(problems *Problems) {
	c := &checker{s: s, problems: problems, ours: append(s.Listeners(), s.AdminListen)}
	c.upstream()
	c.listeners()
	c.process()
	c.routes()
	for _, r := range s.All() {
		c.r = r
		c.loops()
		c.scheme()
		c.tls()
		c.headers()
		c.times()
		c.backoff()
		c.retries()
		c.useless()
		c.unfamiliar()
		c.fallback()
		c.memory()
		if r != &s.Default {
			c.matcher()
		}
	}
}

type checker struct {
	s        *Settings
	r        *Route
	problems *Problems
	ours     []Address // every listener, admin included
}

// own reports whether the route itself, not the global setting, set the key. For the
// default route it reports whether any variable did.
func (c *checker) own(key string) bool { return c.r.own[key] != "" }

// set reports whether some variable, own or global, set the key.
func (c *checker) set(key string) bool { return c.r.Variable(key) != "" }

// name returns the variable to blame for a key.
func (c *checker) name(key string) string { return c.r.Blame(key) }

func (c *checker) errorf(key, value, format string, args ...any) {
	c.problems.errorf(c.name(key), value, format, args...)
}

func (c *checker) warnf(key, value, format string, args ...any) {
	c.problems.warnf(c.name(key), value, format, args...)
}

// upstream checks that there is one, unless it may be in a file that could not be read.
func (c *checker) upstream() {
	d := &c.s.Default
	if !d.Upstream.Set() && d.Variable("UPSTREAM") == "" && !c.s.from.unread {
		message := "must be set, for example to http://localhost:3000 or https://api.example.com"
		if c.s.from.unprefixed {
			message += "; UPSTREAM without " + Prefix + " is ignored"
		}
		c.problems.errorf(Prefix+"UPSTREAM", "", "%s", message)
	}
}

// listeners checks that no address is used twice, except by routes that share a listener.
func (c *checker) listeners() {
	if sameListener(c.s.Default.Listen, c.s.AdminListen) {
		c.problems.errorf(Prefix+"ADMIN_LISTEN", string(c.s.AdminListen), "is the address of %sLISTEN=%s; choose another port", Prefix, c.s.Default.Listen)
	}
	for i := range c.s.Routes {
		r := &c.s.Routes[i]
		name, listen := routePrefix(r.Name)+"LISTEN", r.Listen
		switch {
		case listen == c.s.Default.Listen:
		case sameListener(listen, c.s.Default.Listen):
			c.problems.errorf(name, string(listen), "overlaps %sLISTEN=%s; write it the same way or choose another port", Prefix, c.s.Default.Listen)
		case sameListener(listen, c.s.AdminListen):
			c.problems.errorf(name, string(listen), "overlaps %sADMIN_LISTEN=%s; choose another port", Prefix, c.s.AdminListen)
		}
	}
}

// sameListener reports whether a and b conflict: the kernel would refuse the second, or one
// would take the other's connections.
func sameListener(a, b Address) bool {
	networkA, addressA := a.Split()
	networkB, addressB := b.Split()
	if networkA != networkB || networkA == "" {
		return false
	}
	if networkA == "unix" {
		return addressA == addressB
	}
	hostA, portA, _ := net.SplitHostPort(addressA)
	hostB, portB, _ := net.SplitHostPort(addressB)
	if portA != portB || portA == "0" {
		return false
	}
	return hostA == hostB || isWildcard(hostA) || isWildcard(hostB)
}

func isWildcard(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// process checks settings of the whole process.
func (c *checker) process() {
	s := c.s
	c.admin()
	for _, of := range [][2]string{{"TLS_KEY", s.TLSKey}, {"TLS_CLIENT_CA", s.TLSClientCA}} {
		if key, file := of[0], of[1]; s.TLSCert == "" && file != "" {
			c.problems.errorf(Prefix+key, file, "has no effect without %sTLS_CERT", Prefix)
		}
	}
	if s.TLSCert == "" && s.Variable("TLS_MIN_VERSION") != "" {
		c.problems.warnf(Prefix+"TLS_MIN_VERSION", s.TLSMinVersion, "has no effect without %sTLS_CERT", Prefix)
	}
	if s.SharedEngine.Set() && s.Position == "inbound" {
		c.problems.errorf(Prefix+"SHARED", s.SharedEngine.Name(),
			"sharing needs the same upstream for all processes, but each inbound process has its own (%s); if all have the same one, set %sPOSITION=outbound", s.Default.Upstream, Prefix)
	}
	c.trustsAll("TRUSTED_PROXIES", s.TrustedProxies, "lets every peer claim any client address in X-Forwarded-For")
	c.trustsAll("PROXY_PROTOCOL_FROM", s.ProxyProtocolFrom, "lets every peer claim any client address in a PROXY protocol header")
}

// trustsAll warns about a setting that trusts every address.
func (c *checker) trustsAll(key string, prefixes Prefixes, what string) {
	for _, p := range prefixes {
		if p.Bits() == 0 {
			c.problems.warnf(Prefix+key, p.String(), "%s", what)
		}
	}
}

// admin checks the settings of the admin listener.
func (c *checker) admin() {
	s := c.s
	if s.AdminListen.Off() {
		for _, key := range []string{"ADMIN_ALLOW", "ADMIN_TOKEN_FILE"} {
			if s.Variable(key) != "" {
				c.problems.warnf(Prefix+key, "", "has no effect while %sADMIN_LISTEN=off", Prefix)
			}
		}
		return
	}
	c.trustsAll("ADMIN_ALLOW", s.AdminAllow, "lets everybody read the settings and the paths of requests")
	if s.AdminTokenFile != "" {
		if _, err := AdminToken(s.AdminTokenFile); err != nil {
			c.problems.errorf(Prefix+"ADMIN_TOKEN_FILE", s.AdminTokenFile, "%v", err)
		}
	}
}

// routes checks for malformed patterns and routes with the same match. The messages name
// the route and the pattern.
func (c *checker) routes() {
	var rules []route.Rule[int]
	for i := range c.s.Routes {
		if r := &c.s.Routes[i]; r.hasMatcher() {
			rules = append(rules, route.Rule[int]{Name: r.Name, Match: r.Match(c.s)})
		}
	}
	_, err := route.New(rules, 0)
	for _, each := range joined(err) {
		var wrong *route.RuleError
		if !errors.As(each, &wrong) {
			c.problems.errorf(Prefix+"ROUTES", "", "%s", oneLine(each))
			continue
		}
		variable, value := c.s.matcherOf(wrong)
		message := strings.TrimPrefix(oneLine(wrong.Err), fmt.Sprintf("%s %q: ", strings.ToLower(wrong.Field), value))
		if key := strings.ToUpper(wrong.Field); routeKeys()[key] != nil {
			message = routeKeys()[key].advise(value, message)
		}
		c.problems.errorf(variable, value, "%s", message)
	}
}

// matcherOf returns the variable of a wrong rule, and its value: that of the wrong matcher,
// or of the first one that the route has.
func (s *Settings) matcherOf(wrong *route.RuleError) (variable, value string) {
	r := s.Find(wrong.Rule)
	if r == nil {
		return Prefix + "ROUTES", ""
	}
	for _, v := range r.MatcherValues() {
		if wrong.Field == "" || strings.EqualFold(wrong.Field, v.Key) {
			return routePrefix(r.Name) + v.Key, v.Text
		}
	}
	return r.Blame("LISTEN"), string(r.Listen)
}

func (r *Route) hasMatcher() bool {
	m := &r.Matcher
	return m.Host != "" || m.Path != "" || len(m.Methods) > 0 || m.Header != "" || m.Model != "" || r.ownListen()
}

// ownListen reports whether the route has an address of its own.
func (r *Route) ownListen() bool { return r.parent != nil && r.own["LISTEN"] != "" }

// Match returns the route's matchers for package route. The main listener has no name
// there. A route without matchers, which is only a fallback, matches nothing.
func (r *Route) Match(s *Settings) route.Match {
	m := route.Match{Host: r.Matcher.Host, Path: r.Path, Methods: r.Methods, Header: r.Header, Model: r.Model, Never: !r.hasMatcher()}
	if r.Listen != s.Default.Listen {
		m.Listen = string(r.Listen)
	}
	return m
}

// loops checks that the upstream is not one of our own listeners. Otherwise the proxy would
// send to itself until it has no descriptors left. The admin listener would be open to
// every client, since they would all reach it from loopback.
func (c *checker) loops() {
	for _, listen := range c.ours {
		if c.r.Upstream.reaches(listen) {
			c.errorf("UPSTREAM", c.r.Upstream.String(), "%s", c.ownListener(listen))
			return
		}
	}
}

// ownListener returns what is wrong with an upstream that is one of our own listeners.
func (c *checker) ownListener(a Address) string {
	variable := Prefix + "ADMIN_LISTEN"
	if a != c.s.AdminListen {
		for _, r := range c.s.All() {
			if r.Listen == a {
				variable = r.Blame("LISTEN")
				break
			}
		}
	}
	return fmt.Sprintf("is retryproxy's own listener (%s is %s); change one of the two", variable, a)
}

// scheme warns about the port of https in a URL without TLS, and the other way round.
func (c *checker) scheme() {
	if !c.own("UPSTREAM") {
		return
	}
	for _, t := range append([]upstream.Target{c.r.Upstream.target}, c.r.Upstream.target.MoreTargets...) {
		host, port, err := net.SplitHostPort(t.Address)
		switch {
		case err != nil || t.SRV:
		case port == "443" && t.TLS == nil:
			c.warnf("UPSTREAM", c.r.Upstream.String(), "port 443 is the port of https; did you mean https://%s?", host)
		case port == "80" && t.TLS != nil:
			c.warnf("UPSTREAM", c.r.Upstream.String(), "port 80 is the port of http; did you mean http://%s?", host)
		}
	}
}

// reaches reports whether dialing the upstream certainly reaches the listener a of this
// process.
func (u Upstream) reaches(a Address) bool {
	network, address := a.Split()
	if !u.Set() || network != u.target.Network {
		return false
	}
	return slices.ContainsFunc(append([]upstream.Target{u.target}, u.target.MoreTargets...), func(t upstream.Target) bool {
		return ends(&t, address)
	})
}

// ends is reaches for one target with the listener's network.
func ends(t *upstream.Target, address string) bool {
	if t.Network == "unix" {
		return t.Address == address
	}
	host, port, _ := net.SplitHostPort(address)
	dialled, dialledPort, _ := net.SplitHostPort(t.Address)
	one := *t
	one.MoreTargets = nil
	switch {
	case port != dialledPort:
		return false
	case isWildcard(host):
		return one.Local()
	case isLoopbackName(host):
		return one.Local() && !differentLoopbacks(host, dialled)
	}
	return host == dialled
}

// differentLoopbacks reports whether a and b are different addresses, such as 127.0.0.1 and
// 127.0.0.2; localhost may be any.
func differentLoopbacks(a, b string) bool {
	ipA, errA := netip.ParseAddr(a)
	ipB, errB := netip.ParseAddr(b)
	return errA == nil && errB == nil && ipA.Unmap() != ipB.Unmap()
}

// hasInvalidMatcher reports whether a variable sets a matcher of the route to a value that was refused.
func (c *checker) hasInvalidMatcher() bool {
	return slices.ContainsFunc(matcherSettings, func(s Setting) bool { return s.Key != "STRIP_PREFIX" && c.own(s.Key) })
}

// matcher checks the matchers of a named route.
func (c *checker) matcher() {
	m := &c.r.Matcher
	prefix := routePrefix(c.r.Name)
	if !c.r.hasMatcher() && !c.hasInvalidMatcher() && !c.s.fallsBackTo(c.r) {
		c.problems.errorf(prefix+"PATH", "", "route %[2]s has no matcher; set at least one of %[1]sPATH, %[1]sHOST, %[1]sMETHODS, %[1]sHEADER, %[1]sMODEL and %[1]sLISTEN, or make it the FALLBACK of another route", prefix, c.r.Name)
	}
	if m.StripPrefix == "" {
		return
	}
	switch {
	case !strings.HasPrefix(m.StripPrefix, "/") || strings.HasSuffix(m.StripPrefix, "/"):
		c.problems.errorf(prefix+"STRIP_PREFIX", m.StripPrefix, "expected %s", units["pathprefix"])
	default:
		match := c.r.Match(c.s)
		for _, path := range match.Paths() {
			if path != m.StripPrefix && !strings.HasPrefix(path, m.StripPrefix+"/") {
				c.problems.errorf(prefix+"STRIP_PREFIX", m.StripPrefix, "%sPATH=%q does not begin with %s", prefix, path, m.StripPrefix)
			}
		}
	}
}
