package inject

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// shop is a Deployment, with what is to be tried in place of PORT, PROBES, ENV and ANNOTATIONS, and a
// Service with SERVICE.
const shop = `apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}, annotations: {ANNOTATIONS}}
    spec:
      containers:
      - name: app
        image: app:1
        env: [ENV]
        ports: [{PORT}]
        PROBES: x
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {selector: {app: shop}, ports: [{SERVICE}]}
---
apiVersion: v1
kind: Service
metadata: {name: orders, namespace: sales}
spec: {selector: {app: orders}, ports: [{name: web, port: 80}, {name: grpc, port: 9090}, {port: 9191, appProtocol: kubernetes.io/h2c}, {port: 8080, appProtocol: http}]}
`

func withShop(replace map[string]string) string {
	all := map[string]string{"PORT": "name: api, containerPort: 5000", "SERVICE": "port: 80, targetPort: api", "PROBES: x": "tty: false", "ENV": "", "ANNOTATIONS": ""}
	var pairs []string
	for key, value := range all {
		if given, is := replace[strings.TrimSuffix(key, ": x")]; is {
			value = given
		}
		pairs = append(pairs, key, value)
	}
	return strings.NewReplacer(pairs...).Replace(shop)
}

// upstreams returns RETRYPROXY_UPSTREAM of each sidecar in the output, and that of further routes.
func upstreams(t *testing.T, output []byte) (all []string) {
	t.Helper()
	var deployment yaml.Node
	if err := yaml.Unmarshal(output, &deployment); err != nil {
		t.Fatal(err)
	}
	for _, c := range items(get(deployment.Content[0], "spec", "template", "spec", "initContainers")) {
		for _, e := range items(get(c, "env")) {
			if strings.HasSuffix(text(get(e, "name")), "UPSTREAM") {
				all = append(all, text(get(e, "value")))
			}
		}
	}
	return all
}

const (
	probe      = "readinessProbe: {grpc: {port: 5000}}"
	other      = "livenessProbe: {grpc: {port: 5001}}"
	httpGet    = "readinessProbe: {httpGet: {port: 5000, path: /}}"
	annotation = `retryproxy.io/inbound-protocol: `
)

// injects injects into manifests, and checks the upstream of the sidecar, or the parts of the error, and that
// injecting twice is the same as once. It returns nil if nothing was injected.
func injects(t *testing.T, name, manifests string, o Options, want string, wrong []string) *Result {
	t.Helper()
	got, err := Stream([]byte(manifests), o)
	for _, part := range wrong {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, expected %q", name, err, part)
		}
	}
	if len(wrong) > 0 {
		return nil
	}
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return nil
	}
	if all := upstreams(t, got.Output); !slices.Equal(all, []string{want}) {
		t.Errorf("%s: %q, expected %s", name, all, want)
	}
	if again, err := Stream(got.Output, o); err != nil || string(again.Output) != string(got.Output) || len(again.Notes) > 0 {
		t.Errorf("%s: injecting twice is not the same as once: %v, %v", name, err, again)
	}
	return got
}

func TestTheInboundUpstreamSpeaksWhatTheManifestsSay(t *testing.T) {
	h2c, http1 := "h2c://127.0.0.1:5000", "http://127.0.0.1:5000"
	for name, tc := range map[string]struct {
		manifest map[string]string
		flag     string
		want     string   // the upstream
		wrong    []string // parts of the error
		note     string
	}{
		"nothing":                  {want: http1},
		"an httpGet probe":         {manifest: map[string]string{"PROBES": httpGet}, want: http1},
		"a grpc probe":             {manifest: map[string]string{"PROBES": probe}, want: h2c, note: "because the readinessProbe of the container app is grpc"},
		"a grpc startup probe":     {manifest: map[string]string{"PROBES": "startupProbe: {grpc: {port: 5000, service: ready}}"}, want: h2c},
		"of another port":          {manifest: map[string]string{"PROBES": other}, want: http1},
		"appProtocol h2c":          {manifest: map[string]string{"SERVICE": "port: 80, targetPort: api, appProtocol: kubernetes.io/h2c"}, want: h2c, note: "because the Service shop has appProtocol: kubernetes.io/h2c"},
		"appProtocol of a mesh":    {manifest: map[string]string{"SERVICE": "port: 80, targetPort: 5000, appProtocol: grpc"}, want: h2c},
		"an unknown appProtocol":   {manifest: map[string]string{"SERVICE": "port: 80, targetPort: api, appProtocol: example.com/own"}, want: http1},
		"the Service's port grpc":  {manifest: map[string]string{"SERVICE": "name: grpc-api, port: 80, targetPort: 5000"}, want: h2c, note: "because the Service shop names its port grpc-api"},
		"the Service's port h2c":   {manifest: map[string]string{"SERVICE": "name: h2c, port: 80, targetPort: api"}, want: h2c},
		"the container's port":     {manifest: map[string]string{"PORT": "name: grpc, containerPort: 5000", "SERVICE": "port: 80, targetPort: grpc"}, want: h2c, note: "because the port 5000 has the name grpc"},
		"gRPC-Web":                 {manifest: map[string]string{"SERVICE": "name: grpc-web, port: 80, targetPort: api"}, want: http1},
		"another Service's port":   {manifest: map[string]string{"SERVICE": "name: grpc, port: 80, targetPort: 5001}, {name: web, port: 81, targetPort: api", "PORT": "name: api, containerPort: 5000}, {containerPort: 5001", "ANNOTATIONS": "retryproxy.io/inbound-port: api"}, want: http1},
		"all of them":              {manifest: map[string]string{"PROBES": probe, "SERVICE": "name: grpc, port: 80, targetPort: api, appProtocol: kubernetes.io/h2c"}, flag: "h2c", want: h2c},
		"the flag alone":           {flag: "h2c", want: h2c},
		"the annotation":           {manifest: map[string]string{"ANNOTATIONS": annotation + "h2c"}, want: h2c},
		"it overrides the flag":    {manifest: map[string]string{"ANNOTATIONS": annotation + "http"}, flag: "h2c", want: http1},
		"flag against probe":       {manifest: map[string]string{"PROBES": probe}, flag: "http", wrong: []string{"--inbound-protocol", "the readinessProbe of the container app is grpc"}},
		"annotation against name":  {manifest: map[string]string{"ANNOTATIONS": annotation + "http", "SERVICE": "name: grpc, port: 80, targetPort: api"}, wrong: []string{"retryproxy.io/inbound-protocol", "the Service shop names its port grpc"}},
		"probe against Service":    {manifest: map[string]string{"PROBES": probe, "SERVICE": "port: 80, targetPort: api, appProtocol: http"}, wrong: []string{"the readinessProbe of the container app is grpc", "the Service shop has appProtocol: http"}},
		"name against appProtocol": {manifest: map[string]string{"SERVICE": "name: grpc, port: 80, targetPort: api, appProtocol: http"}, wrong: []string{"has appProtocol: http", "names its port grpc"}},
		"no protocol":              {flag: "grpc", wrong: []string{`inbound protocol "grpc": expected http or h2c`}},
	} {
		o := Default("retryproxy:1")
		o.InboundProtocol = tc.flag
		got := injects(t, name, withShop(tc.manifest), o, tc.want, tc.wrong)
		if got != nil && tc.note != "" && !slices.ContainsFunc(got.Notes, func(n Note) bool { return strings.Contains(n.Text, tc.note) }) {
			t.Errorf("%s: %v, expected %q", name, got.Notes, tc.note)
		}
	}
}

// A sidecar from before these facts were read stays, and the note says what to do.
func TestAnExistingSidecarThatSpeaksAnotherProtocolIsNoted(t *testing.T) {
	o := Default("retryproxy:1")
	before, err := Stream([]byte(withShop(nil)), o)
	if err != nil {
		t.Fatal(err)
	}
	later := strings.Replace(string(before.Output), "tty: false", probe, 1)
	got, err := Stream([]byte(later), o)
	if err != nil || string(got.Output) != later {
		t.Fatalf("%v\n%s", err, got.Output)
	}
	if len(got.Notes) != 1 || !strings.Contains(got.Notes[0].Text, "the existing container retryproxy-in sends http://127.0.0.1:5000, but the readinessProbe of the container app is grpc") {
		t.Errorf("%v", got.Notes)
	}
}

// The webhook sees the Pod alone.
func TestThePodAloneSaysItsProtocol(t *testing.T) {
	for name, tc := range map[string]struct{ annotations, container, want, wrong string }{
		"probe":         {"", `"livenessProbe": {"grpc": {"port": 5000}}`, "h2c://127.0.0.1:5000", ""},
		"name":          {`, "retryproxy.io/inbound-port": "grpc"`, `"tty": false`, "h2c://127.0.0.1:5001", ""},
		"annotation":    {`, "retryproxy.io/inbound-protocol": "h2c"`, `"tty": false`, "h2c://127.0.0.1:5000", ""},
		"none":          {"", `"tty": false`, "http://127.0.0.1:5000", ""},
		"contradiction": {`, "retryproxy.io/inbound-protocol": "http"`, `"livenessProbe": {"grpc": {"port": 5000}}`, "", "the livenessProbe of the container app is grpc"},
		"unknown":       {`, "retryproxy.io/inbound-protocol": "gopher"`, `"tty": false`, "", `inbound protocol "gopher": expected http or h2c`},
	} {
		d := json.NewDecoder(strings.NewReader(`{"metadata": {"annotations": {"retryproxy.io/inject": "true"` + tc.annotations + `}}, "spec": {"containers": [{"name": "app",
			"ports": [{"name": "api", "containerPort": 5000}` + map[bool]string{true: `, {"name": "grpc", "containerPort": 5001}`}[name == "name"] + `], ` + tc.container + `}]}}`))
		d.UseNumber()
		var object map[string]any
		if err := d.Decode(&object); err != nil {
			t.Fatal(err)
		}
		pod, _, err := Pod(object, Default("retryproxy:1"))
		if tc.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), tc.wrong) {
				t.Errorf("%s: %v, expected %q", name, err, tc.wrong)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := variable(items(get(fromJSON(pod), "spec", "initContainers"))[0], "RETRYPROXY_UPSTREAM"); got != tc.want {
			t.Errorf("%s: %s, expected %s", name, got, tc.want)
		}
	}
}

func TestTheOutboundUpstreamSpeaksWhatTheManifestsSay(t *testing.T) {
	for name, tc := range map[string]struct {
		value, protocol string // of the variable
		alias           string // an upstream of --outbound-host in its place
		namespace       string // of the Deployment
		want, points    string
		wrong           []string
	}{
		"a URL":                         {value: "http://orders.sales:80/v1?a=b", want: "http://orders.sales:80", points: "http://127.0.0.1:18180/v1?a=b"},
		"a Service's port grpc":         {value: "http://orders.sales:9090", want: "h2c://orders.sales:9090", points: "http://127.0.0.1:18180"},
		"host:port of it":               {value: "orders.sales.svc.cluster.local:9090", want: "h2c://orders.sales.svc.cluster.local:9090", points: "127.0.0.1:18180"},
		"a target of gRPC":              {value: "dns:///orders.sales.svc.:9191", want: "h2c://orders.sales.svc.:9191", points: "dns:///127.0.0.1:18180"},
		"in its namespace":              {value: "orders:9191", namespace: "sales", want: "h2c://orders:9191", points: "127.0.0.1:18180"},
		"another Service of that name":  {value: "http://orders:9191", want: "http://orders:9191", points: "http://127.0.0.1:18180"},
		"another domain":                {value: "http://orders.sales.example.com:9191", want: "http://orders.sales.example.com:9191", points: "http://127.0.0.1:18180"},
		"HTTP/1.1 at host:port":         {value: "orders.sales:8080", want: "http://orders.sales:8080", points: "127.0.0.1:18180"},
		"the flag":                      {value: "elsewhere:9", protocol: "h2c", want: "h2c://elsewhere:9", points: "127.0.0.1:18180"},
		"the flag and a URL":            {value: "http://elsewhere:9/", protocol: "h2c", want: "h2c://elsewhere:9", points: "http://127.0.0.1:18180/"},
		"TLS":                           {value: "https://elsewhere", want: "https://elsewhere", points: "http://127.0.0.1:18180"},
		"TLS at a port named grpc":      {value: "https://orders.sales:9090", want: "https://orders.sales:9090", points: "http://127.0.0.1:18180"},
		"the flag against TLS":          {value: "https://elsewhere", protocol: "h2c", wrong: []string{"API is https", "--outbound-protocol (annotation retryproxy.io/outbound-protocol) is API=h2c"}},
		"appProtocol against TLS":       {value: "https://orders.sales:9191", wrong: []string{"API is https", "the Service orders has appProtocol: kubernetes.io/h2c"}},
		"the flag against appProtocol":  {value: "http://orders.sales:8080", protocol: "h2c", wrong: []string{"is API=h2c", "the Service orders has appProtocol: http"}},
		"the flag against the name":     {value: "orders.sales:9090", protocol: "http", wrong: []string{"is API=http", "the Service orders names its port grpc"}},
		"nothing says it":               {value: "elsewhere:9", wrong: []string{"API=elsewhere:9 is not an http:// or https:// URL", "--outbound-protocol API=h2c"}},
		"no address":                    {value: "/elsewhere", wrong: []string{"API=/elsewhere is not an http:// or https:// URL, nor host:port"}},
		"no protocol":                   {value: "elsewhere:9", protocol: "grpc", wrong: []string{`outbound protocol of API: "grpc": expected http or h2c`}},
		"a host":                        {alias: "http://orders.sales:80", want: "http://orders.sales:80"},
		"a host by h2c":                 {alias: "h2c://elsewhere:9", want: "h2c://elsewhere:9"},
		"a host by h2c, as its Service": {alias: "h2c://orders.sales:9090", want: "h2c://orders.sales:9090"},
		"a host against its Service":    {alias: "http://orders.sales:9090", wrong: []string{"host backend: its upstream is http://orders.sales:9090", "the Service orders names its port grpc"}},
	} {
		o := Default("retryproxy:1")
		if tc.alias != "" {
			o.OutboundHosts = []HostAlias{{"backend", 7000, tc.alias}}
		} else {
			o.OutboundEnv = []string{"API"}
		}
		if tc.protocol != "" {
			o.OutboundProtocols = []Protocol{{"API", tc.protocol}}
		}
		in := withShop(map[string]string{"ENV": `{name: API, value: "` + tc.value + `"}`})
		if tc.namespace != "" {
			in = strings.Replace(in, "metadata: {name: shop}", "metadata: {name: shop, namespace: "+tc.namespace+"}", 1)
		}
		got := injects(t, name, in, o, tc.want, tc.wrong)
		if got != nil && tc.points != "" && !strings.Contains(string(got.Output), "{name: API, value: \""+tc.points+"\"}") && !strings.Contains(string(got.Output), "{name: API, value: '"+tc.points+"'}") {
			t.Errorf("%s: expected API=%s in\n%s", name, tc.points, got.Output[:strings.Index(string(got.Output), "initContainers")])
		}
	}
	o := Default("retryproxy:1")
	o.OutboundEnv, o.OutboundProtocols = []string{"API"}, []Protocol{{"APPI", "h2c"}}
	if err := o.Check(); err == nil || !strings.Contains(err.Error(), "outbound protocol of APPI: it is not among the variables of --outbound-env") {
		t.Errorf("%v", err)
	}
}
