package gatewayapi

import (
	"cmp"
	"time"
)

// The types contain the fields that are read. The tag of the embedded Object lists fields that do
// not affect requests; any other is reported as lost. See decoder.

type metadata struct {
	Object    `ignore:"*"`
	Name      string `yaml:"name" required:"true"`
	Namespace string `yaml:"namespace"`
	Created   string `yaml:"creationTimestamp"`
}

func (m *metadata) namespace() string { return cmp.Or(m.Namespace, defaultNamespace) }

const defaultNamespace = "default"

type httpRoute struct {
	Object   `ignore:"apiVersion,kind,status"`
	Metadata metadata      `yaml:"metadata" required:"true"`
	Spec     httpRouteSpec `yaml:"spec" required:"true"`
}

type httpRouteSpec struct {
	Object     `ignore:"useDefaultGateways"`
	ParentRefs []parentRef `yaml:"parentRefs"`
	Hostnames  []string    `yaml:"hostnames"`
	Rules      []rule      `yaml:"rules"`
}

type parentRef struct {
	Object `ignore:"group,name,namespace,sectionName,port"`
	Kind   string `yaml:"kind"`
}

type rule struct {
	Object
	Name        string       `yaml:"name"`
	Matches     []match      `yaml:"matches"`
	Filters     []filter     `yaml:"filters"`
	BackendRefs []backendRef `yaml:"backendRefs"`
	Timeouts    timeouts     `yaml:"timeouts"`
	Retry       *retry       `yaml:"retry"`
}

type match struct {
	Object
	Path        *valueMatch  `yaml:"path"`
	Headers     []valueMatch `yaml:"headers"`
	QueryParams []valueMatch `yaml:"queryParams"`
	Method      string       `yaml:"method"`
}

type valueMatch struct {
	Object
	Type  string `yaml:"type"`
	Name  string `yaml:"name"`
	Value string `yaml:"value"`
}

type filter struct {
	Object
	Type            string          `yaml:"type" required:"true"`
	RequestHeaders  *headerModifier `yaml:"requestHeaderModifier"`
	ResponseHeaders *headerModifier `yaml:"responseHeaderModifier"`
	Rewrite         *urlRewrite     `yaml:"urlRewrite"`
}

type headerModifier struct {
	Object
	Set    []header `yaml:"set"`
	Add    []header `yaml:"add"`
	Remove []string `yaml:"remove"`
}

type header struct {
	Object
	Name  string `yaml:"name" required:"true"`
	Value string `yaml:"value" required:"true"`
}

type urlRewrite struct {
	Object
	Hostname string       `yaml:"hostname"`
	Path     *pathRewrite `yaml:"path"`
}

type pathRewrite struct {
	Object
	Type               string  `yaml:"type" required:"true"`
	ReplacePrefixMatch *string `yaml:"replacePrefixMatch"`
}

type backendRef struct {
	Object
	Group     string   `yaml:"group"`
	Kind      string   `yaml:"kind"`
	Name      string   `yaml:"name" required:"true"`
	Namespace string   `yaml:"namespace"`
	Port      *int     `yaml:"port"`
	Weight    *int     `yaml:"weight"`
	Filters   []filter `yaml:"filters"`
}

type timeouts struct {
	Object
	Request        *duration `yaml:"request"`
	BackendRequest *duration `yaml:"backendRequest"`
}

type retry struct {
	Object
	Codes    []int     `yaml:"codes"`
	Attempts *int      `yaml:"attempts"`
	Backoff  *duration `yaml:"backoff"`
}

// duration is a duration of GEP-2257.
type duration time.Duration

// trafficPolicy is an XBackendTrafficPolicy (GEP-3388).
type trafficPolicy struct {
	Object   `ignore:"apiVersion,kind,status"`
	Metadata metadata          `yaml:"metadata" required:"true"`
	Spec     trafficPolicySpec `yaml:"spec" required:"true"`
}

type trafficPolicySpec struct {
	Object
	TargetRefs      []targetRef      `yaml:"targetRefs"`
	RetryConstraint *retryConstraint `yaml:"retryConstraint"`
}

type targetRef struct {
	Object
	Group string `yaml:"group"`
	Kind  string `yaml:"kind" required:"true"`
	Name  string `yaml:"name" required:"true"`
}

type retryConstraint struct {
	Object
	Budget       budget `yaml:"budget"`
	MinRetryRate rate   `yaml:"minRetryRate"`
}

type budget struct {
	Object
	Percent  *int      `yaml:"percent"`
	Interval *duration `yaml:"interval"`
}

type rate struct {
	Object
	Count    *int      `yaml:"count"`
	Interval *duration `yaml:"interval"`
}

// backend is a Backend of Envoy Gateway. One with fallback is used if the others fail.
type backend struct {
	Object   `ignore:"apiVersion,kind,status"`
	Metadata metadata    `yaml:"metadata" required:"true"`
	Spec     backendSpec `yaml:"spec" required:"true"`
}

type backendSpec struct {
	Object
	Type      string     `yaml:"type"`
	Endpoints []endpoint `yaml:"endpoints"`
	Fallback  bool       `yaml:"fallback"`
}

type endpoint struct {
	Object
	FQDN *addressAndPort `yaml:"fqdn"`
	IP   *addressAndPort `yaml:"ip"`
	Unix *unixSocket     `yaml:"unix"`
}

type addressAndPort struct {
	Object
	Hostname string `yaml:"hostname"`
	Address  string `yaml:"address"`
	Port     int    `yaml:"port" required:"true"`
}

type unixSocket struct {
	Object
	Path string `yaml:"path" required:"true"`
}
