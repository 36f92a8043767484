package inject

import (
	"errors"
	"github.com/spf13/pflag"
	"strings"
)

// WebhookFlags adds the flags of a webhook.
func (o *Options) WebhookFlags(f *pflag.FlagSet) {
	o.clusterFlags(f)
	o.resourceFlags(f)
}

// CommandFlags adds the flags of a command that reads manifests.
func (o *Options) CommandFlags(f *pflag.FlagSet) {
	o.WebhookFlags(f)
	o.applicationFlags(f)
	addList(f, "only", "`kind/name` or name of a workload to change; others stay as they are; may be repeated", &o.Only, fields, asIs)
}

func (o *Options) clusterFlags(f *pflag.FlagSet) {
	f.StringVar(&o.Image, "image", o.Image, "`image` of the sidecar, as your cluster pulls it")
	f.StringVar(&o.PullPolicy, "pull-policy", o.PullPolicy, "Always, IfNotPresent or Never")
	addList(f, "set", "`NAME=VALUE` of a setting of every sidecar, with or without RETRYPROXY_; may be repeated", &o.Settings, whole, parseSetting)
	addList(f, "set-inbound", "`NAME=VALUE` of a setting of inbound sidecars only; may be repeated", &o.InboundSettings, whole, parseSetting)
	addList(f, "set-outbound", "`NAME=VALUE` of a setting of outbound sidecars only; may be repeated", &o.OutboundSettings, whole, parseSetting)
}

func (o *Options) resourceFlags(f *pflag.FlagSet) {
	f.StringVar(&o.CPURequest, "cpu-request", o.CPURequest, "CPU request of a sidecar, a `quantity`")
	f.StringVar(&o.MemoryRequest, "memory-request", o.MemoryRequest, "memory request of a sidecar, a `quantity`")
	f.StringVar(&o.MemoryLimit, "memory-limit", o.MemoryLimit, "memory limit of a sidecar, a `quantity`")
}

func (o *Options) applicationFlags(f *pflag.FlagSet) {
	f.BoolVar(&o.Inbound, "inbound", o.Inbound, "put a sidecar in front of the application; the default without --outbound-env and --outbound-host")
	f.StringVar(&o.InboundPort, "inbound-port", o.InboundPort, "`name or number` of the application's port; default: the one that a Service in the input targets, else the only one")
	f.StringVar(&o.InboundProtocol, "inbound-protocol", o.InboundProtocol, "`protocol` of the application's port, http or h2c (HTTP/2 without TLS, as for gRPC); default: h2c if a grpc probe, an appProtocol or a port's name says so, else http")
	f.BoolVar(&o.ServiceElsewhere, "service-elsewhere", o.ServiceElsewhere, "the Service is not in the input: you point it at the sidecar's port yourself")
	f.BoolVar(&o.LeadServices, "lead-services", o.LeadServices, "point Services that target a port by number at the sidecar; use it only if every Pod of these Services has a sidecar, because other Pods do not serve its port")
	addList(f, "outbound-env", "`NAME` of a variable of the application that holds the URL of a remote service, or host:port of a gRPC server; may be repeated", &o.OutboundEnv, fields, asIs)
	addList(f, "outbound-protocol", "`NAME=PROTOCOL`: the remote service of that variable speaks http or h2c; then it may be host:port, as gRPC has it; default: as its Service in the input says, else http; may be repeated", &o.OutboundProtocols, fields, parseProtocol)
	addList(f, "outbound-host", "`HOST:PORT=UPSTREAM`: the name HOST becomes loopback, where the sidecar listens on PORT and sends to UPSTREAM (http://, https:// or h2c://); may be repeated", &o.OutboundHosts, fields, parseHostAlias)
	f.StringVar(&o.Container, "container", o.Container, "`name` of the application's container, if there are several")
	f.StringVar(&o.ConfigMap, "config-map", o.ConfigMap, "`name` of a ConfigMap whose key env has settings; they are read again when it changes")
}

// addList adds a flag whose values are split and appended to a list. The first use replaces what
// the list has.
func addList[T any](f *pflag.FlagSet, name, usage string, to *[]T, split func(string) []string, parse func(string) (T, error)) {
	used := false
	f.Func(name, usage, func(text string) error {
		if !used {
			*to, used = nil, true
		}
		var errs []error
		for _, part := range split(text) {
			v, err := parse(part)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			*to = append(*to, v)
		}
		return errors.Join(errs...)
	})
}

func whole(s string) []string { return []string{s} }

func fields(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

func asIs(s string) (string, error) { return s, nil }
