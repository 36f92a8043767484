package gatewayapi

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// clusterDomain is the usual DNS domain of a cluster's Services.
const clusterDomain = ".svc.cluster.local"

// backends adds the upstreams of the rule: its one backendRef with a weight, and the fallbacks.
func (s *ruleSettings) backends() bool {
	whole := !s.loseUnknown(s.rule.BackendRefs, theRule)
	var first, fallbacks []*backendRef
	for i := range s.rule.BackendRefs {
		ref := &s.rule.BackendRefs[i]
		switch b := s.envoyBackend(ref); {
		case ref.Weight != nil && *ref.Weight == 0: // gets no requests
		case ref.Weight != nil && *ref.Weight < 0:
			s.wrong(ref.in("weight"), "expected 0 or more, found %d", *ref.Weight)
		case b != nil && b.Spec.Fallback:
			fallbacks = append(fallbacks, ref)
		default:
			first = append(first, ref)
		}
	}
	switch {
	case len(first) == 0 && slices.ContainsFunc(s.rule.Filters, func(f filter) bool { return f.Type == "RequestRedirect" }):
		return false // the filter is reported elsewhere
	case len(first) == 0:
		s.lose(s.rule.place, theRule, "no backendRef gets its requests, which Gateway API answers with 500")
		return false
	case len(first) > 1:
		s.lose(first[1].place, theRule, "a route has one upstream and no weights")
		return false
	}
	address, ok := s.addressOf(first[0])
	s.address = setting{value: address, line: first[0].line}
	whole = s.filters(first[0].Filters) && ok && whole
	whole = s.fallbacks(fallbacks) && whole
	s.list = append(s.list, s.budgets[s.serviceOf(first[0])]...)
	return whole
}

func (s *ruleSettings) fallbacks(refs []*backendRef) bool {
	whole := true
	var list []string
	line := 0
	for _, ref := range refs {
		address, ok := s.addressOf(ref)
		if len(ref.Filters) > 0 {
			s.lose(ref.in("filters"), theRule, "a fallback has no filters of its own")
			ok = false
		}
		whole, line = whole && ok, ref.line
		list = append(list, address)
	}
	if len(list) > 1 {
		s.lose(refs[1].place, theRule, "several fallbacks share the requests there, and are asked in turn here")
		return false
	}
	if len(list) > 0 {
		s.set("FALLBACK", strings.Join(list, ","), line)
	}
	return whole
}

func (s *ruleSettings) namespaceOf(ref *backendRef) string {
	return cmp.Or(ref.Namespace, s.route.Metadata.namespace())
}

// serviceOf returns the key of the Service's policy, "" if ref is no Service.
func (s *ruleSettings) serviceOf(ref *backendRef) string {
	if !ref.isService() {
		return ""
	}
	return s.namespaceOf(ref) + "/" + ref.Name
}

func (ref *backendRef) isService() bool {
	return ref.Group == "" && (ref.Kind == "" || ref.Kind == "Service")
}

// envoyBackend returns the Backend of Envoy Gateway that ref names, or nil if the file has none.
func (s *ruleSettings) envoyBackend(ref *backendRef) *backend {
	if ref.Group != groupEnvoy || ref.Kind != "Backend" {
		return nil
	}
	for _, b := range s.file.backends {
		if b.Metadata.Name == ref.Name && b.Metadata.namespace() == s.namespaceOf(ref) {
			return b
		}
	}
	return nil
}

// addressOf returns the upstream of a backendRef.
func (s *ruleSettings) addressOf(ref *backendRef) (address string, ok bool) {
	switch b := s.envoyBackend(ref); {
	case b != nil:
		return s.endpoints(b)
	case !ref.isService():
		s.lose(ref.place, theRule, "the address of %s %s is not known: only a Service is read, and a Backend of %s in the same file", ref.Kind, ref.Name, groupEnvoy)
		return "", false
	case ref.Port == nil:
		s.wrong(ref.in("port"), "must be set for a Service")
		return "", true
	case *ref.Port < 1 || *ref.Port > 65535:
		s.wrong(ref.in("port"), "expected a port from 1 to 65535, found %d", *ref.Port)
		return "", true
	}
	return fmt.Sprintf("http://%s.%s%s:%d", ref.Name, s.namespaceOf(ref), clusterDomain, *ref.Port), true
}

// endpoints returns the addresses of a Backend.
func (s *ruleSettings) endpoints(b *backend) (list string, ok bool) {
	ok = !s.loseUnknown(b.Spec, theRule)
	if b.Spec.Type != "" && b.Spec.Type != "Endpoints" {
		s.lose(b.Spec.place, theRule, "only a Backend with endpoints is read, not %s", b.Spec.Type)
		return "", false
	}
	var addresses []string
	for _, e := range b.Spec.Endpoints {
		switch {
		case e.FQDN != nil:
			addresses = append(addresses, "http://"+net.JoinHostPort(e.FQDN.Hostname, strconv.Itoa(e.FQDN.Port)))
		case e.IP != nil:
			addresses = append(addresses, "http://"+net.JoinHostPort(e.IP.Address, strconv.Itoa(e.IP.Port)))
		case e.Unix != nil:
			addresses = append(addresses, "unix:"+e.Unix.Path)
		default:
			s.wrong(e.place, "expected fqdn, ip or unix")
		}
	}
	if len(addresses) == 0 {
		s.wrong(b.Spec.in("endpoints"), "must be set")
	}
	return strings.Join(addresses, ","), ok
}

// Defaults and fixed values of a retry budget.
const (
	defaultPercent   = 20
	defaultCount     = 10
	defaultRateUnit  = duration(time.Second)
	budgetInterval   = duration(10 * time.Second)
	longestInterval  = duration(time.Hour)
	shortestInterval = duration(time.Second)
)

const theBudget = "the retry budget"

// policy records the retry budget for the Services that the policy targets.
func (c *converter) policy(p *trafficPolicy) {
	c.loseUnknown(p.Object, theField)
	c.loseUnknown(p.Spec, theField)
	if p.Spec.RetryConstraint == nil {
		return
	}
	settings := c.budget(p.Spec.RetryConstraint)
	for _, target := range p.Spec.TargetRefs {
		if target.Group != "" || target.Kind != "Service" {
			c.lose(target.place, theBudget, "a retry budget is read for a Service, not for a %s", target.Kind)
			continue
		}
		service := p.Metadata.namespace() + "/" + target.Name
		if c.budgets[service] != nil {
			c.lose(target.place, theBudget, "the Service %s has a retry budget already", service)
			continue
		}
		c.budgets[service] = settings
	}
}

func (c *converter) budget(from *retryConstraint) []setting {
	percent, count := valueOr(from.Budget.Percent, defaultPercent), valueOr(from.MinRetryRate.Count, defaultCount)
	interval, unit := valueOr(from.Budget.Interval, budgetInterval), valueOr(from.MinRetryRate.Interval, defaultRateUnit)
	if percent < 0 || percent > 100 {
		c.wrong(from.Budget.in("percent"), "expected 0 to 100, found %d", percent)
	}
	if interval != budgetInterval {
		c.lose(from.Budget.in("interval"), "the interval", "the retry budget counts over %s, not %s", durationText(budgetInterval), durationText(interval))
	}
	if count < 0 || count > 1_000_000 {
		c.wrong(from.MinRetryRate.in("count"), "expected 0 to 1000000, found %d", count)
	}
	if unit < shortestInterval || unit > longestInterval {
		c.wrong(from.MinRetryRate.in("interval"), "expected 1s to 1h, found %s", durationText(unit))
		return nil
	}
	perSecond := float64(count) / time.Duration(unit).Seconds()
	return []setting{
		{"BUDGET_RATIO", strconv.Itoa(percent) + "%", from.line},
		{"BUDGET_MIN_PER_SECOND", strconv.FormatFloat(perSecond, 'g', -1, 64), from.line},
		{"BUDGET_BURST", strconv.Itoa(max(count, 1)), from.line},
	}
}

func valueOr[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
