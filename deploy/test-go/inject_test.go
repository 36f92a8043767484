package deploytest

import (
	"os"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
)

// workloads are all kinds that have a Pod template, and the Service of those
// that are called.
func workloads(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("testdata/workloads.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// What inject prints is decoded strictly and passes the API server's
// validation, for each kind and both sides; the settings
// in it are accepted by the proxy.
func TestInjectedManifestsAreValid(t *testing.T) {
	for name, flags := range map[string][]string{
		"inbound":       {"--only", "web,db,agent,set,single"},
		"outbound":      {"--outbound-env", "API_URL"},
		"both":          {"--inbound", "--outbound-env", "API_URL", "--only", "web,db,agent,set,single"},
		"outbound host": {"--outbound-host", "api.internal:9000=https://api.example.com"},
		"settings":      {"--outbound-env", "API_URL", "--set", "MAX_RETRIES=5", "--set", "RETRYPROXY_PROFILE=batch"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"inject", "--image", "registry.example/retryproxy:1.0.0"}, flags...)
			out, err := program(t, "retryproxyctl", nil, workloads(t), args...)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			all, sidecars := decode(t, name, out), 0
			for _, object := range all {
				validate(t, name, object)
				template := templateOf(object)
				if template == nil {
					continue
				}
				checkRestricted(t, template)
				for _, c := range containers(&template.Spec) {
					if isProxy(c) {
						sidecars++
						checkProxy(t, c)
						env, values := settingsOf(t, all, &template.Spec, c)
						if out, err := retryproxy(t, env, "check"); err != nil {
							t.Errorf("retryproxy check: %v\n%s", err, out)
						}
						checkTimes(t, &template.Spec, values)
					}
				}
			}
			if sidecars < 4 {
				t.Errorf("%d sidecars", sidecars)
			}
			if again, err := program(t, "retryproxyctl", nil, out, args...); err != nil || again != out {
				t.Errorf("injecting twice is not the same as once: %v", err)
			}
		})
	}
}

// checkWebhook holds the webhook's container to what its program understands.
func checkWebhook(t *testing.T, c corev1.Container) {
	t.Helper()
	checkContainer(t, c)
	for name, probe := range map[string]*corev1.Probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Scheme != corev1.URISchemeHTTPS || !strings.HasSuffix(probe.HTTPGet.Path, "z") {
			t.Errorf("no %s probe over HTTPS", name)
		}
	}
	// It understands its arguments and stops only at the certificate, which is not here.
	out, err := program(t, "retryproxyctl", nil, "", c.Args...)
	if err == nil || !strings.Contains(out, "/tls/tls.crt") {
		t.Errorf("%q: %v\n%s", c.Args, err, out)
	}
}

// Configuration, Service, Pods and disruption budget of the webhook belong
// together, and a Pod that does not ask needs none of it.
func TestWebhookPartsBelongTogether(t *testing.T) {
	all := objects(t, k8s+"/overlays/webhook")
	deployment := find[*appsv1.Deployment](t, all, "retryproxy-inject")
	service := find[*corev1.Service](t, all, "retryproxy-inject")
	budget := find[*policyv1.PodDisruptionBudget](t, all, "retryproxy-inject")
	for _, selector := range []map[string]string{service.Spec.Selector, budget.Spec.Selector.MatchLabels} {
		if selector["app.kubernetes.io/name"] != deployment.Spec.Template.Labels["app.kubernetes.io/name"] {
			t.Errorf("%v selects other Pods", selector)
		}
	}
	if owner := ownerOf(&deployment.Spec.Template.Spec, service.Spec.Ports[0].TargetPort); owner == nil || !isWebhook(*owner) || *deployment.Spec.Replicas < 2 {
		t.Error("the Service leads elsewhere, or there is one Pod only")
	}
	hook := find[*admissionregistrationv1.MutatingWebhookConfiguration](t, all, "retryproxy-inject").Webhooks[0]
	to := hook.ClientConfig.Service
	if to.Name != service.Name || to.Namespace != service.Namespace || *to.Path != "/mutate" || to.Port != nil && *to.Port != service.Spec.Ports[0].Port {
		t.Errorf("the API server asks %+v", to)
	}
	if *hook.FailurePolicy != admissionregistrationv1.Fail || len(hook.MatchConditions) != 1 || !strings.Contains(hook.MatchConditions[0].Expression, "retryproxy.io/inject") {
		t.Error("a Pod that asks could be made without, or one that does not ask could not be made")
	}
	excluded := hook.NamespaceSelector.MatchExpressions[0].Values
	if !strings.Contains(strings.Join(excluded, " ")+" ", service.Namespace+" ") {
		t.Errorf("the webhook's own namespace is not among %v: it could never start again", excluded)
	}
}
