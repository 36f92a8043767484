package inject

import (
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"
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

// sidecarYAML is the container with every key that one may have, in the usual order. The termination
// message shows the reason of a failed start in kubectl describe.
const sidecarYAML = `
name:
image:
imagePullPolicy:
restartPolicy: Always
env:
ports:
startupProbe:
  exec:
    command: [/retryproxy, health]
  periodSeconds: 1
  timeoutSeconds: 3
  failureThreshold: 60
readinessProbe:
  exec:
    command: [/retryproxy, health]
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
livenessProbe:
  exec:
    command: [/retryproxy, health, --live]
  periodSeconds: 10
  timeoutSeconds: 3
  failureThreshold: 6
lifecycle:
resources:
  requests:
    cpu:
    memory:
  limits:
    memory:
terminationMessagePolicy: FallbackToLogsOnError
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
  seccompProfile:
    type: RuntimeDefault
volumeMounts:
  - name: retryproxy-config
    mountPath: /etc/retryproxy
    readOnly: true
`

const volumeYAML = `
name: retryproxy-config
configMap:
  name:
`

// drainHookYAML makes an inbound sidecar drain when the Pod begins to terminate.
const drainHookYAML = `
preStop:
  exec:
    command: [/retryproxy, drain]
`

// Setting is an environment variable of the sidecar.
type Setting struct {
	Name  string `yaml:"name"`
	Value string `yaml:"value"`
}

// port is a port of a container.
type port struct {
	Name          string `yaml:"name"`
	ContainerPort int    `yaml:"containerPort"`
}

// sidecar returns a container with what both sides have in common.
func (o *Options) sidecar(name string, env []Setting, ports ...port) *yaml.Node {
	c := fromYAML(sidecarYAML)
	put(c, "name", str(name))
	put(c, "image", str(o.Image))
	put(c, "imagePullPolicy", str(o.PullPolicy))
	put(c, "env", build(env))
	put(c, "ports", build(ports))
	resources := get(c, "resources")
	put(get(resources, "requests"), "cpu", str(o.CPURequest))
	put(get(resources, "requests"), "memory", str(o.MemoryRequest))
	put(get(resources, "limits"), "memory", str(o.MemoryLimit))
	if o.PullPolicy == "" {
		remove(c, "imagePullPolicy")
	}
	if o.ConfigMap == "" {
		remove(c, "volumeMounts")
	}
	return c
}

// add puts the sidecar, a native one, before all other init containers, because they start in list
// order. Only those of a mesh stay before it: the sidecar needs their network from its start to its
// end.
func (p *pod) add(c *yaml.Node) {
	if isNull(get(c, "lifecycle")) {
		remove(c, "lifecycle")
	}
	list := within(p.spec, "initContainers", yaml.SequenceNode)
	at := 0
	for i, other := range list.Content {
		if p.mesh.owns(other) {
			at = i + 1
		}
	}
	list.Content = slices.Insert(list.Content, at, c)
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
	v := fromYAML(volumeYAML)
	put(get(v, "configMap"), "name", str(o.ConfigMap))
	volumes.Content = append(volumes.Content, v)
}

// common returns the variables that both sides get.
func (o *Options) common(listen string, admin int) []Setting {
	env := []Setting{{"RETRYPROXY_LISTEN", listen}, {"RETRYPROXY_ADMIN_LISTEN", fmt.Sprintf(":%d", admin)}}
	if o.ConfigMap != "" {
		env = append(env, Setting{"RETRYPROXY_CONFIG_FILE", "/etc/retryproxy/env"})
	}
	return env
}
