package inject

import (
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
)

// Names of injected containers. They also identify what was injected before.
const (
	inboundName  = "retryproxy-in"
	outboundName = "retryproxy-out"
	volumeName   = "retryproxy-config"
)

// The ports of the sidecars, far from those that applications use. If the Pod already declares one,
// the next free one is used.
const (
	inboundPort       = 18080
	outboundPort      = 18180
	inboundAdminPort  = 9797
	outboundAdminPort = 9798
)

// The shutdown of an inbound sidecar: delay and drain fit in the grace period, with time left for
// the kubelet. As in deploy/k8s.
const (
	drainDelay   = 5 * time.Second
	drainTimeout = 20 * time.Second
	gracePeriod  = 40 // seconds: delay, drain and 15 more
	appLasts     = 8  // seconds for which the application must accept requests after termination begins
	drainLasts   = 26 // seconds after which the sidecar has no request in flight
	outboundEnd  = 5 * time.Second
)

const (
	userID      = 65532
	probePeriod = 5 // seconds
)

// The container as YAML, in the usual order.
type (
	container struct {
		Name            string          `yaml:"name"`
		Image           string          `yaml:"image"`
		ImagePullPolicy string          `yaml:"imagePullPolicy,omitempty"`
		RestartPolicy   string          `yaml:"restartPolicy,omitempty"`
		Env             []Setting       `yaml:"env"`
		Ports           []port          `yaml:"ports"`
		StartupProbe    probe           `yaml:"startupProbe"`
		ReadinessProbe  probe           `yaml:"readinessProbe"`
		LivenessProbe   probe           `yaml:"livenessProbe"`
		Lifecycle       *lifecycle      `yaml:"lifecycle,omitempty"`
		Resources       resources       `yaml:"resources"`
		MessagePolicy   string          `yaml:"terminationMessagePolicy"`
		SecurityContext securityContext `yaml:"securityContext"`
		VolumeMounts    []mount         `yaml:"volumeMounts,omitempty"`
	}
	port struct {
		Name          string `yaml:"name"`
		ContainerPort int    `yaml:"containerPort"`
	}
	probe struct {
		Exec             command `yaml:"exec"`
		PeriodSeconds    int     `yaml:"periodSeconds"`
		TimeoutSeconds   int     `yaml:"timeoutSeconds"`
		FailureThreshold int     `yaml:"failureThreshold"`
	}
	command struct {
		Command []string `yaml:"command,flow"`
	}
	handler struct {
		Exec command `yaml:"exec"`
	}
	lifecycle struct {
		PostStart *handler `yaml:"postStart,omitempty"`
		PreStop   *handler `yaml:"preStop,omitempty"`
	}
	resources struct {
		Requests map[string]string `yaml:"requests"`
		Limits   map[string]string `yaml:"limits"`
	}
	securityContext struct {
		RunAsNonRoot             bool         `yaml:"runAsNonRoot"`
		RunAsUser                int          `yaml:"runAsUser"`
		RunAsGroup               int          `yaml:"runAsGroup"`
		AllowPrivilegeEscalation bool         `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool         `yaml:"readOnlyRootFilesystem"`
		Capabilities             capabilities `yaml:"capabilities"`
		SeccompProfile           seccomp      `yaml:"seccompProfile"`
	}
	capabilities struct {
		Drop []string `yaml:"drop,flow"`
	}
	seccomp struct {
		Type string `yaml:"type"`
	}
	volume struct {
		Name      string    `yaml:"name"`
		ConfigMap configMap `yaml:"configMap"`
	}
	configMap struct {
		Name string `yaml:"name"`
	}
	mount struct {
		Name      string `yaml:"name"`
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	}
)

// Setting is an environment variable of the sidecar.
type Setting struct {
	Name  string `yaml:"name"`
	Value string `yaml:"value"`
}

func exec(args ...string) command { return command{append([]string{"/retryproxy"}, args...)} }

// sidecar returns a container with what both sides have in common.
func (o *Options) sidecar(name string, env []Setting, admin port) container {
	c := container{
		Name:            name,
		Image:           o.Image,
		ImagePullPolicy: o.PullPolicy,
		Env:             env,
		Ports:           []port{admin},
		StartupProbe:    probe{exec("health"), 1, 3, 60},
		ReadinessProbe:  probe{exec("health"), probePeriod, 3, 2},
		LivenessProbe:   probe{exec("health", "--live"), 2 * probePeriod, 3, 6},
		Resources: resources{
			Requests: map[string]string{"cpu": o.CPURequest, "memory": o.MemoryRequest},
			Limits:   map[string]string{"memory": o.MemoryLimit},
		},
		MessagePolicy: "FallbackToLogsOnError", // shows the reason of a failed start in kubectl describe
		SecurityContext: securityContext{
			RunAsNonRoot: true, RunAsUser: userID, RunAsGroup: userID, ReadOnlyRootFilesystem: true,
			Capabilities: capabilities{[]string{"ALL"}}, SeccompProfile: seccomp{"RuntimeDefault"},
		},
	}
	if o.native() {
		c.RestartPolicy = "Always"
	} else {
		c.Lifecycle = &lifecycle{PostStart: &handler{exec("wait", "--timeout", "60s")}}
	}
	if o.ConfigMap != "" {
		c.VolumeMounts = []mount{{volumeName, "/etc/retryproxy", true}}
	}
	return c
}

// add puts the sidecar before all others of its kind, because native sidecars start in list order,
// and so do containers with a postStart hook. Only those of a mesh stay before it: the sidecar
// needs their network from its start to its end.
func (p *pod) add(c container) {
	key := "containers"
	if p.native() {
		key = "initContainers"
	}
	list := within(p.spec, key, yaml.SequenceNode)
	at := 0
	for i, other := range list.Content {
		if p.mesh.owns(other) {
			at = i + 1
		}
	}
	list.Content = slices.Insert(list.Content, at, build(c))
	if p.ConfigMap != "" {
		p.addVolume(p.spec)
	}
}

func (o *Options) addVolume(spec *yaml.Node) {
	volumes := within(spec, "volumes", yaml.SequenceNode)
	for _, v := range volumes.Content {
		if text(get(v, "name")) == volumeName {
			return
		}
	}
	volumes.Content = append(volumes.Content, build(volume{volumeName, configMap{o.ConfigMap}}))
}

// common returns the variables that both sides get.
func (o *Options) common(listen string, admin int) []Setting {
	env := []Setting{{"RETRYPROXY_LISTEN", listen}, {"RETRYPROXY_ADMIN_LISTEN", fmt.Sprintf(":%d", admin)}}
	if o.ConfigMap != "" {
		env = append(env, Setting{"RETRYPROXY_CONFIG_FILE", "/etc/retryproxy/env"})
	}
	return env
}
