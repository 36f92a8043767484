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
	annotateInjected = annotations + "injected" // set by us: the sidecars that were injected
	// A setting of the sidecars: env.retryproxy.io/MAX_RETRIES: "5".
	annotateEnv         = "env.retryproxy.io/"
	annotateInboundEnv  = "env-inbound.retryproxy.io/"
	annotateOutboundEnv = "env-outbound.retryproxy.io/"
)

// Wanted returns what the annotation retryproxy.io/inject of an object's metadata asks for: yes,
// no, or neither.
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

// With returns the options, overridden by the annotations of the metadata. An unknown annotation is
// an error.
func (o Options) With(metadata *yaml.Node) (Options, error) {
	all := get(metadata, "annotations")
	o.Settings, o.InboundSettings, o.OutboundSettings = slices.Clone(o.Settings), slices.Clone(o.InboundSettings), slices.Clone(o.OutboundSettings)
	var errs []error
	for i := 0; all != nil && all.Kind == yaml.MappingNode && i+1 < len(all.Content); i += 2 {
		if err := o.annotate(all.Content[i].Value, text(all.Content[i+1])); err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, o.Check(), o.trySettings())
	return o, errors.Join(errs...)
}

// trySettings checks the settings by themselves, so that their errors are reported together with
// those of annotations. Check reports settings that the injection itself sets.
func (o *Options) trySettings() error {
	base := []Setting{{"RETRYPROXY_UPSTREAM", "http://127.0.0.1:1"}}
	var errs []error
	for _, side := range []struct {
		is   bool
		list []Setting
	}{{o.inbound(), o.InboundSettings}, {o.outbound(), o.OutboundSettings}} {
		all := slices.DeleteFunc(merged(base, o.Settings, side.list), func(s Setting) bool { return s.Name != base[0].Name && checkSetting(s) != nil })
		if err := tried(all); side.is && err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 2 && errs[0].Error() == errs[1].Error() {
		errs = errs[:1]
	}
	return errors.Join(errs...)
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
		return yesOrNo(key, value, &o.Inbound)
	case "inbound-port":
		o.InboundPort = value
	case "service-elsewhere":
		return yesOrNo(key, value, &o.ServiceElsewhere)
	case "lead-services":
		return yesOrNo(key, value, &o.LeadServices)
	case "outbound-env":
		o.OutboundEnv = fields(value)
	case "outbound-host":
		return o.annotateHosts(key, value)
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
		return fmt.Errorf("annotation %s: unknown", key)
	}
	return nil
}

func (o *Options) annotateHosts(key, value string) error {
	o.OutboundHosts = nil
	var errs []error
	for _, f := range fields(value) {
		h, err := ParseHostAlias(f)
		if err != nil {
			errs = append(errs, fmt.Errorf("annotation %s: %w", key, err))
			continue
		}
		o.OutboundHosts = append(o.OutboundHosts, h)
	}
	return errors.Join(errs...)
}

func yesOrNo(key, value string, to *bool) error {
	if value != "true" && value != "false" {
		return fmt.Errorf("annotation %s: %q: expected \"true\" or \"false\"", key, value)
	}
	*to = value == "true"
	return nil
}

func fields(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}
