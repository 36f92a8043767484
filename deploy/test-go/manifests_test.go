package deploytest

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	podsecurity "k8s.io/pod-security-admission/api"
	podsecuritypolicy "k8s.io/pod-security-admission/policy"
)

// binaries builds retryproxy and retryproxyctl once for all tests: the
// manifests are checked against what they really understand.
var binaries = sync.OnceValues(func() (string, error) {
	directory, err := os.MkdirTemp("", "deploytest")
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", directory+"/", "./cmd/retryproxy", "./cmd/retryproxyctl")
	build.Dir = "../.."
	build.Stderr = os.Stderr
	return directory, build.Run()
})

func TestMain(m *testing.M) {
	code := m.Run()
	if directory, err := binaries(); err == nil {
		_ = os.RemoveAll(directory)
	}
	os.Exit(code)
}

func retryproxy(t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	return program(t, "retryproxy", env, "", args...)
}

func program(t *testing.T, name string, env []string, input string, args ...string) (string, error) {
	t.Helper()
	directory, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(filepath.Join(directory, name), args...)
	command.Env = env
	command.Stdin = strings.NewReader(input)
	out, err := command.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return string(out) + string(exit.Stderr), err
	}
	return string(out), err
}

// Every kustomization renders, is decoded strictly and passes the API server's validation.
func TestManifestsAreValid(t *testing.T) {
	for _, directory := range kustomizations(t) {
		t.Run(strings.TrimPrefix(directory, k8s+"/"), func(t *testing.T) {
			checkObjects(t, directory, objects(t, directory))
		})
	}
}

func checkObjects(t *testing.T, source string, all []runtime.Object) {
	t.Helper()
	for _, object := range all {
		validate(t, source, object)
		if template := templateOf(object); template != nil {
			checkPod(t, template)
		}
	}
}

// The checks themselves must be able to fail.
func TestValidationRefuses(t *testing.T) {
	good := render(t, k8s+"/overlays/inbound")
	for name, change := range map[string]struct{ old, new string }{
		"a field that does not exist":    {"runAsNonRoot: true", "runAsNotRoot: true"},
		"a field twice":                  {"imagePullPolicy: IfNotPresent", "imagePullPolicy: IfNotPresent\n        imagePullPolicy: Always"},
		"a probe of two kinds":           {"startupProbe:", "startupProbe:\n          tcpSocket: {port: 1}"},
		"a port name that is too long":   {"name: rp-http", "name: retryproxy-inbound"},
		"a restartPolicy of no sidecar":  {"restartPolicy: Always", "restartPolicy: Sometimes"},
		"a volume that is not there":     {"mountPath: /etc/retryproxy\n          name: retryproxy", "mountPath: /etc/retryproxy\n          name: other"},
		"a selector that is not matched": {"matchLabels:\n      app.kubernetes.io/name: web", "matchLabels:\n      app.kubernetes.io/name: other"},
	} {
		bad := strings.Replace(good, change.old, change.new, 1)
		if bad == good {
			t.Errorf("%s: nothing was changed", name)
			continue
		}
		refused := false
		for _, document := range splitDocuments(bad) {
			object, err := decodeOne(document)
			if err == nil {
				problems, kindErr := problemsOf(object)
				refused = refused || len(problems) > 0 || kindErr != nil
			}
			refused = refused || err != nil
		}
		if !refused {
			t.Errorf("%s is accepted", name)
		}
	}
}

// checkPod holds a Pod that has a retryproxy to what docs/how-to/kubernetes-run.md promises of it.
func checkPod(t *testing.T, template *corev1.PodTemplateSpec) {
	t.Helper()
	spec := &template.Spec
	checkRestricted(t, template)
	if spec.EnableServiceLinks == nil || *spec.EnableServiceLinks {
		t.Error("enableServiceLinks is not false")
	}
	found := 0
	for _, c := range containers(spec) {
		switch {
		case isProxy(c):
			found++
			checkProxy(t, c)
		case isWebhook(c):
			found++
			checkWebhook(t, c)
		}
	}
	if found == 0 {
		t.Error("neither retryproxy nor retryproxyctl in the Pod")
	}
}

// checkRestricted applies the Pod Security Standard "restricted" with the
// admission controller's own code.
func checkRestricted(t *testing.T, template *corev1.PodTemplateSpec) {
	t.Helper()
	evaluator, err := podsecuritypolicy.NewEvaluator(podsecuritypolicy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
	for _, result := range evaluator.EvaluatePod(level, &template.ObjectMeta, &template.Spec) {
		if !result.Allowed {
			t.Errorf("Pod Security Standard restricted: %s: %s", result.ForbiddenReason, result.ForbiddenDetail)
		}
	}
}

func checkProxy(t *testing.T, c corev1.Container) {
	t.Helper()
	checkContainer(t, c)
	for name, probe := range map[string]*corev1.Probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
		if probe == nil || probe.Exec == nil {
			t.Errorf("no %s probe by command", name)
			continue
		}
		checkCommand(t, probe.Exec.Command)
	}
	if l := c.Lifecycle; l != nil {
		for _, hook := range []*corev1.LifecycleHandler{l.PostStart, l.PreStop} {
			if hook != nil {
				checkCommand(t, hook.Exec.Command)
			}
		}
	}
}

// checkContainer is what both images promise.
func checkContainer(t *testing.T, c corev1.Container) {
	t.Helper()
	if tag := c.Image[strings.LastIndex(c.Image, "/"):]; strings.HasSuffix(tag, ":latest") || !strings.ContainsAny(tag, ":@") {
		t.Errorf("image %s is not a fixed version", c.Image)
	}
	if s := c.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.RunAsUser == nil || *s.RunAsUser != 65532 {
		t.Error("the root file system can be written, or the user is not 65532")
	}
	if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
		t.Error("requests of CPU and memory and a limit of memory are not all there")
	}
	if !c.Resources.Limits.Cpu().IsZero() {
		t.Error("a CPU limit throttles")
	}
}

// checkCommand: the binary itself, by a command and flags that it has.
func checkCommand(t *testing.T, command []string) {
	t.Helper()
	if len(command) < 2 || command[0] != "/retryproxy" {
		t.Errorf("%q is not a command of the binary", command)
		return
	}
	out, err := retryproxy(t, nil, append(slices.Clone(command[1:]), "-h")...)
	if err != nil {
		t.Errorf("%q: %v\n%s", command, err, out)
	}
}

// settingsOf is the environment of the proxy's container with the file from
// its ConfigMap, as `retryproxy` would get it.
func settingsOf(t *testing.T, all []runtime.Object, spec *corev1.PodSpec, c corev1.Container) (env []string, values map[string]string) {
	t.Helper()
	values = map[string]string{}
	for _, e := range c.Env {
		values[e.Name] = e.Value
		if e.Name != "RETRYPROXY_CONFIG_FILE" {
			env = append(env, e.Name+"="+e.Value)
			continue
		}
		content := mounted(t, all, spec, c, e.Value)
		file := filepath.Join(t.TempDir(), "env")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		env = append(env, "RETRYPROXY_CONFIG_FILE="+file)
		maps.Copy(values, settingsIn(content))
	}
	return env, values
}

// settingsIn are the settings of a file, without its comments.
func settingsIn(file string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(file) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			values[name] = value
		}
	}
	return values
}

// mounted is the content of a ConfigMap's key that a container sees at path.
func mounted(t *testing.T, all []runtime.Object, spec *corev1.PodSpec, c corev1.Container, path string) string {
	t.Helper()
	for _, m := range c.VolumeMounts {
		key, ok := strings.CutPrefix(path, m.MountPath+"/")
		if !ok {
			continue
		}
		for _, v := range spec.Volumes {
			if v.Name == m.Name {
				return find[*corev1.ConfigMap](t, all, v.ConfigMap.Name).Data[key]
			}
		}
	}
	t.Fatalf("nothing is mounted at %s", path)
	return ""
}

// slack is what the kubelet and the end of the process need beside the drain.
const slack = 5 * time.Second

// Settings that `retryproxy check` accepts, and a grace period in which the drain fits.
func TestSettingsAreAcceptedAndTimesAddUp(t *testing.T) {
	for _, directory := range kustomizations(t) {
		t.Run(strings.TrimPrefix(directory, k8s+"/"), func(t *testing.T) {
			checkSettings(t, objects(t, directory))
		})
	}
}

func checkSettings(t *testing.T, all []runtime.Object) {
	t.Helper()
	for _, object := range all {
		template := templateOf(object)
		if template == nil {
			continue
		}
		for _, c := range containers(&template.Spec) {
			if isProxy(c) {
				env, values := settingsOf(t, all, &template.Spec, c)
				if out, err := retryproxy(t, env, "check"); err != nil || !strings.Contains(out, "\nvalid, 0 warnings") {
					t.Errorf("retryproxy check: %v\n%s", err, out)
				}
				checkTimes(t, &template.Spec, values)
			}
		}
	}
}

func checkTimes(t *testing.T, spec *corev1.PodSpec, values map[string]string) {
	t.Helper()
	grace := 30 * time.Second
	if spec.TerminationGracePeriodSeconds != nil {
		grace = time.Duration(*spec.TerminationGracePeriodSeconds) * time.Second
	}
	if drain := drainOf(t, values, "DELAY", 0) + drainOf(t, values, "TIMEOUT", 20*time.Second); drain+slack > grace {
		t.Errorf("drain %v does not fit in the grace period of %v", drain, grace)
	}
}

func drainOf(t *testing.T, values map[string]string, name string, standard time.Duration) time.Duration {
	t.Helper()
	value, ok := values["RETRYPROXY_DRAIN_"+name]
	if !ok {
		return standard
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The sidecar is up before the application and goes after it.
func TestSidecarOutlivesTheApplication(t *testing.T) {
	for _, directory := range []string{"inbound", "outbound", "job"} {
		for _, object := range objects(t, k8s+"/overlays/"+directory) {
			template := templateOf(object)
			if template == nil {
				continue
			}
			first := template.Spec.InitContainers[0]
			if !isProxy(first) || first.RestartPolicy == nil || *first.RestartPolicy != corev1.ContainerRestartPolicyAlways || first.StartupProbe == nil {
				t.Errorf("%s: the first init container is not a native sidecar with a startup probe", directory)
			}
			if drains := first.Lifecycle != nil && first.Lifecycle.PreStop != nil; drains != (directory == "inbound") {
				t.Errorf("%s: drain at the beginning of the Pod's end: %v; that is for inbound alone", directory, drains)
			}
		}
	}
}

// The application behind an inbound sidecar is not told to end before the sidecar has drained: its hook asks the admin port.
func TestInboundApplicationOutlastsTheDrain(t *testing.T) {
	all := objects(t, k8s+"/overlays/inbound")
	spec := &find[*appsv1.Deployment](t, all, "web").Spec.Template.Spec
	var delay time.Duration
	var admin string
	var hook *corev1.HTTPGetAction
	for _, c := range containers(spec) {
		if isProxy(c) {
			_, values := settingsOf(t, all, spec, c)
			delay, admin = drainOf(t, values, "DELAY", 0), values["RETRYPROXY_ADMIN_LISTEN"]
			continue
		}
		hook = c.Lifecycle.PreStop.HTTPGet
	}
	if delay < 5*time.Second || hook == nil || hook.Path != "/drained" || ":"+hook.Port.String() != admin {
		t.Errorf("the drain delay is %v, the application's hook %+v, the admin port %s", delay, hook, admin)
	}
}

// What a Service sends arrives at a retryproxy.
func TestServicesTargetTheProxy(t *testing.T) {
	for directory, name := range map[string][2]string{
		"inbound": {"web", "web"}, "gateway": {"retryproxy-gateway", "retryproxy-gateway"},
	} {
		all := objects(t, k8s+"/overlays/"+directory)
		service := find[*corev1.Service](t, all, name[0])
		template := find[*appsv1.Deployment](t, all, name[1]).Spec.Template
		for key, value := range service.Spec.Selector {
			if template.Labels[key] != value {
				t.Errorf("%s: the Service does not select the Pods", directory)
			}
		}
		for _, port := range service.Spec.Ports {
			if owner := ownerOf(&template.Spec, port.TargetPort); owner == nil || !isProxy(*owner) {
				t.Errorf("%s: port %v leads to no retryproxy", directory, port.TargetPort)
			}
		}
	}
}

// ownerOf is the container that declares the port.
func ownerOf(spec *corev1.PodSpec, port intstr.IntOrString) *corev1.Container {
	for _, c := range containers(spec) {
		for _, p := range c.Ports {
			if p.Name == port.String() || port.Type == intstr.Int && p.ContainerPort == port.IntVal {
				return &c
			}
		}
	}
	return nil
}

// The autoscaler, the disruption budget and the spread are those of the gateway's Pods.
func TestGatewayPartsBelongTogether(t *testing.T) {
	all := objects(t, k8s+"/overlays/gateway")
	gateway := find[*appsv1.Deployment](t, all, "retryproxy-gateway")
	if gateway.Spec.Replicas != nil {
		t.Error("replicas are the autoscaler's")
	}
	scaler := find[*autoscalingv2.HorizontalPodAutoscaler](t, all, "retryproxy-gateway")
	if ref := scaler.Spec.ScaleTargetRef; ref.Name != gateway.Name || ref.Kind != "Deployment" || *scaler.Spec.MinReplicas < 2 {
		t.Errorf("it scales %v from %d", ref, *scaler.Spec.MinReplicas)
	}
	budget := find[*policyv1.PodDisruptionBudget](t, all, "retryproxy-gateway")
	selectors := []map[string]string{budget.Spec.Selector.MatchLabels}
	for _, spread := range gateway.Spec.Template.Spec.TopologySpreadConstraints {
		selectors = append(selectors, spread.LabelSelector.MatchLabels)
	}
	if len(selectors) != 3 {
		t.Errorf("%d selectors, want those of the budget, the zone and the node", len(selectors))
	}
	for _, s := range selectors {
		if len(s) == 0 || gateway.Spec.Template.Labels["app.kubernetes.io/name"] != s["app.kubernetes.io/name"] {
			t.Errorf("%v selects other Pods", s)
		}
	}
}
