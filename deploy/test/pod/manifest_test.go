package pod

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/retryproxy/retryproxy/deploy/test/engine"
)

// The parts of the Kubernetes API that decide how containers run. What inject
// writes besides would be refused, so that nothing of it is overlooked.
type (
	object struct {
		APIVersion string    `yaml:"apiVersion"`
		Kind       string    `yaml:"kind"`
		Metadata   yaml.Node `yaml:"metadata"`
		Spec       struct {
			Selector yaml.Node `yaml:"selector"`
			Ports    []struct {
				Port       int    `yaml:"port"`
				TargetPort string `yaml:"targetPort"`
			} `yaml:"ports"`
			Template struct {
				Metadata yaml.Node `yaml:"metadata"`
				Spec     podSpec   `yaml:"spec"`
			} `yaml:"template"`
		} `yaml:"spec"`
	}
	podSpec struct {
		HostAliases []struct {
			IP        string   `yaml:"ip"`
			Hostnames []string `yaml:"hostnames"`
		} `yaml:"hostAliases"`
		SecurityContext struct {
			Sysctls []struct {
				Name  string `yaml:"name"`
				Value string `yaml:"value"`
			} `yaml:"sysctls"`
		} `yaml:"securityContext"`
		TerminationGracePeriodSeconds int         `yaml:"terminationGracePeriodSeconds"`
		InitContainers                []container `yaml:"initContainers"`
		Containers                    []container `yaml:"containers"`
	}
	container struct {
		Name            string   `yaml:"name"`
		Image           string   `yaml:"image"`
		ImagePullPolicy string   `yaml:"imagePullPolicy"`
		RestartPolicy   string   `yaml:"restartPolicy"`
		Args            []string `yaml:"args"`
		Env             []struct {
			Name  string `yaml:"name"`
			Value string `yaml:"value"`
		} `yaml:"env"`
		Ports []struct {
			Name          string `yaml:"name"`
			ContainerPort int    `yaml:"containerPort"`
		} `yaml:"ports"`
		StartupProbe   probe `yaml:"startupProbe"`
		ReadinessProbe probe `yaml:"readinessProbe"`
		LivenessProbe  probe `yaml:"livenessProbe"`
		Lifecycle      struct {
			PreStop struct {
				Exec    command `yaml:"exec"`
				HTTPGet struct {
					Path string `yaml:"path"`
					Port int    `yaml:"port"`
				} `yaml:"httpGet"`
			} `yaml:"preStop"`
		} `yaml:"lifecycle"`
		Resources struct {
			Requests, Limits map[string]string
		} `yaml:"resources"`
		TerminationMessagePolicy string `yaml:"terminationMessagePolicy"`
		SecurityContext          struct {
			RunAsNonRoot             bool                    `yaml:"runAsNonRoot"`
			RunAsUser                int                     `yaml:"runAsUser"`
			RunAsGroup               int                     `yaml:"runAsGroup"`
			AllowPrivilegeEscalation bool                    `yaml:"allowPrivilegeEscalation"`
			ReadOnlyRootFilesystem   bool                    `yaml:"readOnlyRootFilesystem"`
			Capabilities             struct{ Drop []string } `yaml:"capabilities"`
			SeccompProfile           struct{ Type string }   `yaml:"seccompProfile"`
		} `yaml:"securityContext"`
	}
	probe struct {
		Exec             command `yaml:"exec"`
		PeriodSeconds    int     `yaml:"periodSeconds"`
		TimeoutSeconds   int     `yaml:"timeoutSeconds"`
		FailureThreshold int     `yaml:"failureThreshold"`
	}
	command struct {
		Command []string `yaml:"command"`
	}
)

// inject runs `retryproxyctl inject` on the manifest and decodes what it prints:
// the Pod, and the number that the Service's first port leads to in it.
func inject(t *testing.T, manifest string, flags ...string) (spec podSpec, target int) {
	t.Helper()
	dir := t.TempDir()
	engine.Run(t, []string{"CGO_ENABLED=0"}, "go", "build", "-o", dir, "./cmd/retryproxyctl")
	input := filepath.Join(dir, "app.yaml")
	if err := os.WriteFile(input, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	out := engine.Run(t, nil, dir+"/retryproxyctl", append([]string{"inject", "-f", input}, flags...)...)
	name := ""
	for d := decoder(out); ; {
		var o object
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, out)
		}
		switch o.Kind {
		case "Service":
			name = o.Spec.Ports[0].TargetPort
		case "Deployment":
			spec = o.Spec.Template.Spec
		}
	}
	return spec, spec.port(t, name)
}

func decoder(text string) *yaml.Decoder {
	d := yaml.NewDecoder(bytes.NewReader([]byte(text)))
	d.KnownFields(true)
	return d
}

// port is what a Service's targetPort means, a number or a name.
func (p *podSpec) port(t *testing.T, target string) int {
	t.Helper()
	if n, err := strconv.Atoi(target); err == nil {
		return n
	}
	for _, c := range p.Containers {
		for _, port := range c.Ports {
			if port.Name == target {
				return port.ContainerPort
			}
		}
	}
	t.Fatalf("no port %q in the Pod", target)
	return 0
}

// env is the value that the container gets for a variable.
func (c *container) env(name string) string {
	for _, e := range c.Env {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

// flags are those of docker run for what the manifest says of the container.
func (c *container) flags() []string {
	var args []string
	for _, e := range c.Env {
		args = append(args, "--env", e.Name+"="+e.Value)
	}
	s := c.SecurityContext
	if s.RunAsUser != 0 {
		args = append(args, "--user", strconv.Itoa(s.RunAsUser)+":"+strconv.Itoa(s.RunAsGroup))
		if !s.AllowPrivilegeEscalation {
			args = append(args, "--security-opt", "no-new-privileges")
		}
	}
	if s.ReadOnlyRootFilesystem {
		args = append(args, "--read-only")
	}
	for _, capability := range s.Capabilities.Drop {
		args = append(args, "--cap-drop", capability)
	}
	if m := c.Resources.Limits["memory"]; m != "" {
		args = append(args, "--memory", strings.ToLower(strings.TrimSuffix(m, "i"))) // 128Mi is 128m to Docker
	}
	return append(append(args, c.Image), c.Args...)
}
