package deploytest

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

const chartDirectory = "../helm/retryproxy"

// release is how a chart is rendered; where something is not set, as `helm
// template retryproxy` does.
type release struct {
	name, namespace string
	kubernetes      string // its version, such as v1.29.0
	values          string // YAML
}

// helmTemplate is `helm template`, by its own engine, the values checked
// against the schema.
func helmTemplate(t *testing.T, r release) (string, error) {
	t.Helper()
	chart, err := loader.Load(chartDirectory)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte(r.values), &values); err != nil {
		t.Fatal(err)
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *kubeVersion(t, cmp.Or(r.kubernetes, "v1.36.0"))
	options := common.ReleaseOptions{Name: cmp.Or(r.name, "retryproxy"), Namespace: cmp.Or(r.namespace, "default"), Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(chart, values, options, capabilities)
	if err != nil {
		return "", err
	}
	rendered, err := engine.Render(chart, all)
	if err != nil {
		return "", err
	}
	var documents []string
	for name, document := range rendered {
		if path.Ext(name) == ".yaml" {
			documents = append(documents, "# "+name+"\n"+document)
		}
	}
	slices.Sort(documents)
	return strings.Join(documents, "\n---\n"), nil
}

func kubeVersion(t *testing.T, text string) *common.KubeVersion {
	t.Helper()
	version, err := common.ParseKubeVersion(text)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// chartObjects renders and decodes.
func chartObjects(t *testing.T, r release) []runtime.Object {
	t.Helper()
	out, err := helmTemplate(t, r)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, "chart", out)
}

const (
	upstreamValues = `{gateway: {settings: {UPSTREAM: "http://upstream.default.svc.cluster.local"}}}`
	webhookValues  = `{gateway: {enabled: false}, webhook: {enabled: true, certificateSecret: retryproxy-inject-tls, injectCAFrom: retryproxy/retryproxy-inject}}`

	everyValue = `
fullnameOverride: edge
image: {digest: "sha256:` + digest + `", pullPolicy: Always}
imagePullSecrets: [registry]
gateway:
  settings:
    UPSTREAM: http://a:80,http://b:80
    DRAIN_DELAY: 1m0.5s
    DRAIN_TIMEOUT: 500ms
    RETRY_BUFFER_TOTAL_BYTES: 67108864
    BUDGET_RATIO: 0.1
    ACCESS_LOG: true
    RESPONSE_HEADERS_SET: "'X-A: 1'"
    ROUTES: search,user-api
    ROUTE_SEARCH_PATH: /search/*
    ROUTE_USER_API_PATH: /users/*
    ROUTE_SEARCH_UPSTREAM_HOST: preserve
  terminationGracePeriodSeconds: 67
  mounts: [{secret: upstream-ca, path: /ca}, {configMap: more, path: /more}]
  service: {type: LoadBalancer, port: 8000, annotations: {example.com/scheme: internal}}
  autoscaling: {enabled: false}
  replicas: 3
  disruptionBudget: {maxUnavailable: 2}
  resources: {requests: {cpu: 1, memory: 100Mi, ephemeral-storage: 1Mi}, limits: {memory: 1Gi}}
  podLabels: {team: edge}
  podAnnotations: {example.com/note: "1"}
  nodeSelector: {kubernetes.io/arch: arm64}
  tolerations: [{key: edge, operator: Exists, effect: NoSchedule}]
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: edge, operator: Exists}]}]}}}
  priorityClassName: system-cluster-critical
podMonitor: {enabled: true, interval: 1m, scrapeTimeout: 30s, labels: {release: prometheus}}
prometheusRule: {enabled: true, labels: {release: prometheus}}
webhook:
  enabled: true
  image: {repository: registry.example/retryproxyctl, tag: 1.0.1}
  replicas: 3
  certificateSecret: tls
  caBundle: LS0tLS0=
  excludedNamespaces: [kube-system, other]
`
	digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// What the chart makes is decoded strictly, passes the API server's
// validation, and has settings that the proxy accepts and times that add up.
func TestChartIsValid(t *testing.T) {
	for name, c := range map[string]struct {
		release
		objects int
	}{
		"gateway":       {release{values: upstreamValues}, 5},
		"webhook alone": {release{values: webhookValues, namespace: "retryproxy"}, 4},
		"every value":   {release{values: everyValue}, 10},
		"oldest":        {release{values: upstreamValues, kubernetes: "v1.27.0"}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			all := chartObjects(t, c.release)
			if len(all) != c.objects {
				t.Errorf("%d objects, want %d", len(all), c.objects)
			}
			checkObjects(t, "chart", all)
			checkSettings(t, all)
		})
	}
}

func TestChartSettingsAreWrittenAsTheFileHasThem(t *testing.T) {
	env := find[*corev1.ConfigMap](t, chartObjects(t, release{values: everyValue}), "edge").Data["env"]
	for _, line := range []string{"RETRYPROXY_RETRY_BUFFER_TOTAL_BYTES=67108864", "RETRYPROXY_BUDGET_RATIO=0.1", "RETRYPROXY_ACCESS_LOG=true", "RETRYPROXY_RESPONSE_HEADERS_SET='X-A: 1'"} {
		if !strings.Contains(env, line+"\n") {
			t.Errorf("no line %s in\n%s", line, env)
		}
	}
	env = find[*corev1.ConfigMap](t, chartObjects(t, release{values: `{gateway: {settings: {UPSTREAM: http://a, DRAIN_DELAY: null}}}`}), "retryproxy").Data["env"]
	if strings.Contains(env, "DRAIN_DELAY") || !strings.Contains(env, "DRAIN_TIMEOUT") {
		t.Error("null does not take a setting away")
	}
}

// A port that speaks TLS is called so, for those who go by its name.
func TestChartNamesThePortByWhatItSpeaks(t *testing.T) {
	for name, values := range map[string]string{
		"http":  upstreamValues,
		"https": `{gateway: {settings: {UPSTREAM: http://app, TLS_CERT: /tls/tls.crt}, mounts: [{secret: tls, path: /tls}]}}`,
	} {
		if port := find[*corev1.Service](t, chartObjects(t, release{values: values}), "retryproxy").Spec.Ports[0]; port.Name != name || port.TargetPort.StrVal != "http" {
			t.Errorf("%s: %+v", name, port)
		}
	}
}

// Helm's own linter has nothing to say.
func TestChartPassesTheLinter(t *testing.T) {
	var values map[string]any
	if err := yaml.Unmarshal([]byte(everyValue), &values); err != nil {
		t.Fatal(err)
	}
	for _, m := range lint.RunAll(chartDirectory, values, "default", lint.WithKubeVersion(kubeVersion(t, "v1.36.0"))).Messages {
		if m.Severity > support.InfoSev {
			t.Error(m)
		}
	}
}

// Mistakes are told before anything is installed, by the schema or, where two
// values do not go together, by the templates.
func TestChartRefuses(t *testing.T) {
	gateway := func(more string) string { return `{gateway: {settings: {UPSTREAM: http://app}, ` + more + `}}` }
	setting := func(more string) string { return `{gateway: {settings: {UPSTREAM: http://app, ` + more + `}}}` }
	webhook := func(more string) string { return `{gateway: {enabled: false}, webhook: {enabled: true, ` + more + `}}` }
	const certificate = `certificateSecret: tls, caBundle: LS0=`
	for name, c := range map[string]struct {
		values, says, kubernetes string
	}{
		"no upstream":                      {values: `{}`, says: "gateway.settings.UPSTREAM"},
		"a value that does not exist":      {values: gateway(`replica: 3`), says: "replica"},
		"a value at the wrong place":       {values: `{settings: {UPSTREAM: http://app}}`, says: "settings"},
		"a misspelt setting":               {values: setting(`MAX_RETRY: 3`), says: "MAX_RETRY"},
		"a setting with its prefix":        {values: setting(`RETRYPROXY_MAX_RETRIES: 3`), says: "RETRYPROXY_MAX_RETRIES"},
		"a misspelt setting of a route":    {values: setting(`ROUTE_A_PATHS: /a`), says: "ROUTE_A_PATHS"},
		"an address that is the chart's":   {values: setting(`LISTEN: ":80"`), says: "LISTEN"},
		"a listener nobody is led to":      {values: setting(`ROUTE_A_LISTEN: ":81"`), says: "ROUTE_A_LISTEN"},
		"a second line in a setting":       {values: setting(`RETRY_ON: "503\nRETRYPROXY_DRY_RUN=true"`), says: "RETRY_ON"},
		"a list as a setting":              {values: setting(`ROUTES: [a, b]`), says: "ROUTES"},
		"a duration without unit":          {values: setting(`DRAIN_DELAY: "5"`), says: "DRAIN_DELAY"},
		"a grace period that is too short": {values: gateway(`terminationGracePeriodSeconds: 29`), says: "need at least 30"},
		"a drain that is too long":         {values: setting(`DRAIN_TIMEOUT: 1m`), says: "need at least 70"},
		"fewest above most":                {values: gateway(`autoscaling: {minReplicas: 11}`), says: "more than maxReplicas"},
		"no limit of memory":               {values: gateway(`resources: {limits: {memory: null}}`), says: "memory"},
		"a budget that stops every drain":  {values: gateway(`disruptionBudget: {maxUnavailable: 0}`), says: "maxUnavailable"},
		"two sources of one mount":         {values: gateway(`mounts: [{secret: a, configMap: b, path: /a}]`), says: "mounts"},
		"a mount over the settings":        {values: gateway(`mounts: [{secret: a, path: /etc/retryproxy}]`), says: "mounts"},
		"the tag latest":                   {values: `{image: {tag: latest}, gateway: {settings: {UPSTREAM: http://app}}}`, says: "image/tag"},
		"a digest that is none":            {values: `{image: {digest: "sha256:12"}, gateway: {settings: {UPSTREAM: http://app}}}`, says: "image/digest"},
		"a webhook without certificate":    {values: webhook(`caBundle: LS0=`), says: "certificateSecret"},
		"a webhook nobody believes":        {values: webhook(`certificateSecret: tls`), says: "caBundle or webhook.injectCAFrom"},
		"a webhook with two authorities":   {values: webhook(certificate + `, injectCAFrom: a/b`), says: "set one of them"},
		"one webhook":                      {values: webhook(certificate + `, replicas: 1`), says: "replicas"},
		"a cluster that cannot start":      {values: webhook(certificate + `, excludedNamespaces: [other]`), says: "excludedNamespaces"},
		"a webhook before 1.30":            {values: webhook(certificate), kubernetes: "v1.29.5", says: "matchConditions"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := helmTemplate(t, release{values: c.values, kubernetes: c.kubernetes})
			if err == nil {
				t.Fatalf("accepted:\n%s", out)
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v\nsays nothing of %q", err, c.says)
			}
		})
	}
	if _, err := helmTemplate(t, release{values: webhook(certificate)}); err != nil {
		t.Errorf("what the cases change is not valid itself: %v", err)
	}
}
