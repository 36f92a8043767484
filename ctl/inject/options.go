package inject

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/retryproxy/retryproxy/internal/config"
)

// Options is what to inject; the flags describe each field. Start from Default. The annotations of a
// Pod template take precedence.
type Options struct {
	Image      string
	PullPolicy string // "" leaves it to Kubernetes

	Inbound          bool
	InboundPort      string // the application's, by name or number
	InboundProtocol  string // the application's, http or h2c; "": as the manifests say, else http
	ServiceElsewhere bool
	LeadServices     bool

	OutboundEnv   []string    // variables of the application that hold URLs
	OutboundHosts []HostAlias // names to point at loopback
	// OutboundProtocols are those of variables in OutboundEnv; for others it is as the manifests say.
	OutboundProtocols []Protocol

	Container string // the application's container; "" for any
	ConfigMap string // its key env is the settings file; "" for none

	Settings         []Setting // of both sidecars
	InboundSettings  []Setting
	OutboundSettings []Setting

	CPURequest, MemoryRequest, MemoryLimit string // Kubernetes quantities

	Only []string // kind/name or name of the workloads to change; none means all
}

// HostAlias points a name at loopback, where the sidecar listens on its port.
type HostAlias struct {
	Host     string
	Port     int
	Upstream string // the real destination: a URL without a path, with another name
}

// Default returns the options if nothing is requested.
func Default(image string) Options {
	return Options{Image: image, PullPolicy: "IfNotPresent", CPURequest: "50m", MemoryRequest: "32Mi", MemoryLimit: "128Mi"}
}

func (o *Options) outbound() bool { return len(o.OutboundEnv)+len(o.OutboundHosts) > 0 }

// inbound reports whether to inject an inbound sidecar, which is also the default.
func (o *Options) inbound() bool {
	return o.Inbound || o.InboundPort != "" || o.InboundProtocol != "" || !o.outbound()
}

var (
	portName     = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?$`)
	variableName = regexp.MustCompile(`^[A-Za-z_.-][A-Za-z0-9_.-]*$`)
	hostName     = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	// quantity matches common CPU and memory quantities; the API server accepts more.
	quantity = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?(m|k|M|G|Ki|Mi|Gi)?$`)
	dnsName  = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
)

// Check returns an error that names every invalid option.
func (o *Options) Check() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Image == "" {
		wrong("no image of the sidecar: set --image")
	}
	if o.PullPolicy != "" && !slices.Contains([]string{"Always", "IfNotPresent", "Never"}, o.PullPolicy) {
		wrong("pull policy %q: expected Always, IfNotPresent or Never", o.PullPolicy)
	}
	if o.InboundPort != "" && !portName.MatchString(o.InboundPort) {
		wrong("inbound port %q: expected a port's name or number", o.InboundPort)
	}
	if o.InboundProtocol != "" && !slices.Contains(protocols, o.InboundProtocol) {
		wrong("inbound protocol %q: expected %s", o.InboundProtocol, strings.Join(protocols, " or "))
	}
	for _, p := range o.OutboundProtocols {
		if err := p.check(); err != nil {
			errs = append(errs, err)
		} else if !slices.Contains(o.OutboundEnv, p.Name) {
			wrong("outbound protocol of %s: it is not among the variables of --outbound-env", p.Name)
		}
	}
	for _, name := range o.OutboundEnv {
		if !variableName.MatchString(name) {
			wrong("outbound variable %q: expected a variable's name", name)
		}
	}
	for _, h := range o.OutboundHosts {
		if err := h.check(); err != nil {
			errs = append(errs, err)
		}
	}
	for what, value := range map[string]string{"CPU request": o.CPURequest, "memory request": o.MemoryRequest, "memory limit": o.MemoryLimit} {
		if !quantity.MatchString(value) {
			wrong("%s %q: expected a quantity such as 50m or 128Mi", what, value)
		}
	}
	if o.ConfigMap != "" && !dnsName.MatchString(o.ConfigMap) {
		wrong("ConfigMap %q: expected a name", o.ConfigMap)
	}
	for _, s := range slices.Concat(o.Settings, o.InboundSettings, o.OutboundSettings) {
		if err := checkSetting(s); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (h *HostAlias) check() error {
	u, err := url.Parse(h.Upstream)
	switch {
	case !hostName.MatchString(h.Host):
		return fmt.Errorf("outbound host %q: expected a host name in lower case", h.Host)
	case h.Port < 1 || h.Port > 65535:
		return fmt.Errorf("outbound host %s: port %d: expected 1 to 65535", h.Host, h.Port)
	case err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "h2c"}, u.Scheme):
		return fmt.Errorf("outbound host %s: upstream %q: expected http://host[:port], or the same with https or h2c", h.Host, h.Upstream)
	case strings.TrimSuffix(u.Hostname(), ".") == h.Host:
		return fmt.Errorf("outbound host %s: the upstream has the same name, which resolves to loopback in this Pod: use another name, such as %s.NAMESPACE.svc.cluster.local", h.Host, h.Host)
	}
	return nil
}

// parseHostAlias parses HOST:PORT=UPSTREAM.
func parseHostAlias(s string) (HostAlias, error) {
	at, upstream, found := strings.Cut(s, "=")
	host, port, err := net.SplitHostPort(at)
	n, portErr := strconv.Atoi(port)
	if !found || err != nil || portErr != nil {
		return HostAlias{}, fmt.Errorf("outbound host %q: expected HOST:PORT=UPSTREAM, such as api:8080=http://api.shop.svc.cluster.local:8080", s)
	}
	h := HostAlias{Host: host, Port: n, Upstream: upstream}
	return h, h.check()
}

// parseSetting parses NAME=VALUE; the prefix RETRYPROXY_ is optional.
func parseSetting(s string) (Setting, error) {
	name, value, found := strings.Cut(s, "=")
	if !found {
		return Setting{}, fmt.Errorf("setting %q: expected NAME=VALUE", s)
	}
	setting := Setting{withPrefix(name), value}
	return setting, checkSetting(setting)
}

func withPrefix(name string) string {
	if strings.HasPrefix(name, config.Prefix) {
		return name
	}
	return config.Prefix + name
}

// ours are the settings that the injection itself sets.
var ours = []string{"LISTEN", "ADMIN_LISTEN", "UPSTREAM", "CONFIG_FILE", "ROUTES"}

func checkSetting(s Setting) error {
	if slices.Contains(ours, strings.TrimPrefix(s.Name, config.Prefix)) {
		return fmt.Errorf("setting %s: the injection itself sets it", s.Name)
	}
	return nil
}

// merged merges lists of settings: a later value of a name replaces an earlier one.
func merged(lists ...[]Setting) []Setting {
	var all []Setting
	for _, s := range slices.Concat(lists...) {
		if i := slices.IndexFunc(all, func(t Setting) bool { return t.Name == s.Name }); i >= 0 {
			all[i] = s
			continue
		}
		all = append(all, s)
	}
	return all
}

// validate parses the settings as retryproxy will. An error that would prevent its start is reported
// here, before a Pod is created.
func validate(env []Setting) error {
	var environ []string
	for _, s := range env {
		if s.Name != "RETRYPROXY_CONFIG_FILE" { // its content is unknown here
			environ = append(environ, s.Name+"="+s.Value)
		}
	}
	_, problems := config.Load(environ)
	return problems.Err()
}
