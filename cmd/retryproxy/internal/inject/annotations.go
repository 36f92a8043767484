package inject

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The annotations of a Pod or Pod template.
const (
	annotations      = "retryproxy.io/"
	annotateInject   = annotations + "inject"   // "true" or "false"
	annotateInjected = annotations + "injected" // set by us: the sides that are there
	// A setting of the sidecars: env.retryproxy.io/MAX_RETRIES: "5".
	annotateEnv         = "env.retryproxy.io/"
	annotateInboundEnv  = "env-inbound.retryproxy.io/"
	annotateOutboundEnv = "env-outbound.retryproxy.io/"
)

// Wanted is what the annotation retryproxy.io/inject of an object's metadata
// says: yes, no, or nothing.
func Wanted(metadata *yaml.Node) (yes, no bool, err error) {
	switch v := text(get(metadata, "annotations", annotateInject)); v {
	case "":
		return false, false, nil
	case "true", "enabled":
		return true, false, nil
	case "false", "disabled":
		return false, true, nil
	default:
		return false, false, fmt.Errorf("annotation %s: %q: expected \"true\" or \"false\"", annotateInject, v)
	}
}

// With is the options with those of the metadata's annotations over them. A
// misspelt one is an error.
func (o Options) With(metadata *yaml.Node) (Options, error) {
	all := get(metadata, "annotations")
	o.Settings, o.InboundSettings, o.OutboundSettings = slices.Clone(o.Settings), slices.Clone(o.InboundSettings), slices.Clone(o.OutboundSettings)
	var errs []error
	for i := 0; all != nil && all.Kind == yaml.MappingNode && i+1 < len(all.Content); i += 2 {
		if err := o.annotate(all.Content[i].Value, text(all.Content[i+1])); err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, o.Check())
	return o, errors.Join(errs...)
}

func (o *Options) annotate(key, value string) error {
	for prefix, list := range map[string]*[]Setting{annotateEnv: &o.Settings, annotateInboundEnv: &o.InboundSettings, annotateOutboundEnv: &o.OutboundSettings} {
		if name, ok := strings.CutPrefix(key, prefix); ok {
			*list = append(*list, Setting{withPrefix(name), value})
			return nil
		}
	}
	name, ok := strings.CutPrefix(key, annotations)
	if !ok {
		return nil
	}
	switch name {
	case "inject", "injected", "target-ports":
	case "inbound":
		o.Inbound = value == "true"
	case "inbound-port":
		o.InboundPort = value
	case "service-elsewhere":
		o.ServiceElsewhere = value == "true"
	case "outbound-env":
		o.OutboundEnv = fields(value)
	case "outbound-host":
		o.OutboundHosts = nil
		for _, f := range fields(value) {
			h, err := ParseHostAlias(f)
			if err != nil {
				return fmt.Errorf("annotation %s: %w", key, err)
			}
			o.OutboundHosts = append(o.OutboundHosts, h)
		}
	case "container":
		o.Container = value
	case "config-map":
		o.ConfigMap = value
	case "cpu-request":
		o.CPURequest = value
	case "memory-request":
		o.MemoryRequest = value
	case "memory-limit":
		o.MemoryLimit = value
	default:
		return fmt.Errorf("annotation %s: there is none of that name", key)
	}
	return nil
}

func fields(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}
