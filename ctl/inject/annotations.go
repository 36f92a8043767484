package inject

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"

	"github.com/retryproxy/retryproxy/internal/config"
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
		return false, false, fmt.Errorf("annotation %s: %q: %w", annotateInject, v, errTrueOrFalse)
	}
}

var errTrueOrFalse = errors.New(`expected "true" or "false"`)

// With returns the options, overridden by the annotations of the metadata. An unknown annotation is
// an error.
func (o Options) With(metadata *yaml.Node) (Options, error) {
	all := get(metadata, "annotations")
	o.Settings, o.InboundSettings, o.OutboundSettings = slices.Clone(o.Settings), slices.Clone(o.InboundSettings), slices.Clone(o.OutboundSettings)
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.resourceFlags(f)
	o.applicationFlags(f)
	var errs []error
	for i := 0; all != nil && all.Kind == yaml.MappingNode && i+1 < len(all.Content); i += 2 {
		errs = append(errs, o.annotate(f, all.Content[i].Value, text(all.Content[i+1])))
	}
	errs = append(errs, o.Check(), o.checkSettings())
	return o, errors.Join(errs...)
}

// checkSettings checks the settings by themselves, so that their errors are reported together with
// those of annotations. Check reports settings that the injection itself sets.
func (o *Options) checkSettings() error {
	base := []Setting{{"RETRYPROXY_UPSTREAM", "http://127.0.0.1:1"}}
	var errs []error
	for _, side := range []struct {
		is   bool
		list []Setting
	}{{o.inbound(), o.InboundSettings}, {o.outbound(), o.OutboundSettings}} {
		all := slices.DeleteFunc(merged(base, o.Settings, side.list), func(s Setting) bool { return s.Name != base[0].Name && checkSetting(s) != nil })
		if err := validate(all); side.is && err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 2 && errs[0].Error() == errs[1].Error() {
		errs = errs[:1]
	}
	return errors.Join(errs...)
}

// annotate applies one annotation: a setting, or a flag by its name.
func (o *Options) annotate(f *pflag.FlagSet, key, value string) error {
	for prefix, list := range map[string]*[]Setting{annotateEnv: &o.Settings, annotateInboundEnv: &o.InboundSettings, annotateOutboundEnv: &o.OutboundSettings} {
		if name, ok := strings.CutPrefix(key, prefix); ok {
			*list = append(*list, Setting{withPrefix(name), value})
			return nil
		}
	}
	name, ours := strings.CutPrefix(key, annotations)
	if !ours || slices.Contains([]string{"inject", "injected"}, name) {
		return nil
	}
	option := f.Lookup(name)
	if option == nil {
		names := []string{"inject"}
		f.VisitAll(func(one *pflag.Flag) { names = append(names, one.Name) })
		if near := config.Nearest(name, slices.Values(names)); near != "" {
			return fmt.Errorf("annotation %s: unknown; did you mean %s%s?", key, annotations, near)
		}
		return fmt.Errorf("annotation %s: unknown", key)
	}
	if _, isBool := option.Value.(interface{ IsBoolFlag() bool }); isBool && value != "true" && value != "false" {
		return fmt.Errorf("annotation %s: %q: %w", key, value, errTrueOrFalse)
	}
	if err := option.Value.Set(value); err != nil {
		return fmt.Errorf("annotation %s: %w", key, err) // without the value: a URL may have a password
	}
	return nil
}
