package inject

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// scene is a random workload with Services, and what is requested.
type scene struct {
	kind     string
	ports    []scenePort
	probed   string // port of the readiness probe: a name or number, "" for none
	services []string
	urls     int // number of variables that hold URLs
	indented bool
	preStop  bool
	grace    int
	options  Options
}

type scenePort struct {
	name   string
	number int
	host   bool
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func randomScene(r *rand.Rand) scene {
	s := scene{
		kind: pick(r, "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob", "Pod"), indented: r.IntN(2) == 0,
		preStop: r.IntN(4) == 0, grace: pick(r, 0, 10, 30, 60, 300), urls: r.IntN(3), options: Default("i:1"),
	}
	numbers := []int{80, 8080, 9797, 9798, 18080, 18081, 18180, 3000}
	r.Shuffle(len(numbers), func(i, j int) { numbers[i], numbers[j] = numbers[j], numbers[i] })
	for i := range 1 + r.IntN(3) {
		p := scenePort{number: numbers[i], host: r.IntN(6) == 0}
		if r.IntN(2) == 0 {
			p.name = fmt.Sprintf("port%d", i)
		}
		s.ports = append(s.ports, p)
	}
	first := s.ports[0]
	either := strconv.Itoa(first.number) // by name if it has one
	if first.name != "" && r.IntN(2) == 0 {
		either = first.name
	}
	if r.IntN(2) == 0 {
		s.probed = either
	}
	for range r.IntN(3) {
		s.services = append(s.services, pick(r, either, either, strconv.Itoa(s.ports[len(s.ports)-1].number)))
	}
	s.options.Inbound = r.IntN(2) == 0
	s.options.InboundPort = pick(r, "", either)
	s.options.ServiceElsewhere = r.IntN(3) == 0
	s.options.LeadServices = r.IntN(2) == 0
	s.options.ConfigMap = pick(r, "", "settings")
	for i := range s.urls {
		if r.IntN(2) == 0 {
			s.options.OutboundEnv = append(s.options.OutboundEnv, fmt.Sprintf("URL_%d", i))
		}
	}
	if r.IntN(4) == 0 {
		s.options.OutboundHosts = []HostAlias{{Host: "api", Port: pick(r, 80, 8081), Upstream: "http://api.shop.svc.cluster.local"}}
	}
	return s
}

// yaml returns the scene as a user might write it.
func (s *scene) yaml() string {
	var spec strings.Builder
	dash := map[bool]string{true: "  - ", false: "- "}[s.indented]
	line := func(depth int, format string, args ...any) {
		fmt.Fprintf(&spec, "%s%s\n", strings.Repeat("  ", depth), fmt.Sprintf(format, args...))
	}
	if s.grace > 0 {
		line(0, "terminationGracePeriodSeconds: %d # chosen", s.grace)
	}
	line(0, "containers:")
	item := strings.Repeat(" ", len(dash))
	line(0, "%sname: app # the one", dash)
	line(0, "%simage: registry.example/app:1", item)
	line(0, "%sports:", item)
	for _, p := range s.ports {
		words := fmt.Sprintf("containerPort: %d", p.number)
		if p.name != "" {
			words = "name: " + p.name + ", " + words
		}
		if p.host {
			words += fmt.Sprintf(", hostPort: %d", p.number)
		}
		line(0, "%s%s{%s}", item, dash, words)
	}
	if s.probed != "" {
		line(0, "%sreadinessProbe: {httpGet: {path: /, port: %s}}", item, s.probed)
	}
	if s.preStop {
		line(0, "%slifecycle: {preStop: {exec: {command: [flush]}}}", item)
	}
	if s.urls > 0 {
		line(0, "%senv:", item)
		for i := range s.urls {
			line(0, "%s%sname: URL_%d", item, dash, i)
			line(0, "%s%svalue: https://u%d.example.com/v%d?q=1", item, item, i, i)
		}
	}
	return s.wrap(spec.String())
}

func indent(text string, by int) string {
	return strings.ReplaceAll(strings.TrimSuffix("\n"+text, "\n"), "\n", "\n"+strings.Repeat(" ", by))
}

func (s *scene) wrap(spec string) string {
	labels := "labels: {app: a}"
	var b strings.Builder
	version := map[string]string{"Pod": "v1", "Job": "batch/v1", "CronJob": "batch/v1"}[s.kind]
	if version == "" {
		version = "apps/v1"
	}
	fmt.Fprintf(&b, "# made up\napiVersion: %s\nkind: %s\n", version, s.kind)
	switch s.kind {
	case "Pod":
		fmt.Fprintf(&b, "metadata: {name: a, %s}\nspec:%s\n", labels, indent(spec, 2))
	case "CronJob":
		fmt.Fprintf(&b, "metadata: {name: a}\nspec:\n  jobTemplate:\n    spec:\n      template:\n        metadata: {%s}\n        spec:%s\n", labels, indent(spec, 10))
	default:
		fmt.Fprintf(&b, "metadata: {name: a}\nspec:\n  template:\n    metadata: {%s}\n    spec:%s\n", labels, indent(spec, 6))
	}
	for i, target := range s.services {
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Service\nmetadata: {name: s%d}\nspec:\n  selector: {app: a}\n  ports:\n  - port: 80\n    targetPort: %s # there\n", i, target)
	}
	b.WriteString("---\napiVersion: v1\nkind:   ConfigMap\nmetadata: {name:  left}\n")
	return b.String()
}

// For any workload, injecting twice has the same result as once. Requests for the application's
// port reach the sidecar, and the application from there. Probes still reach the application. No
// two listeners have the same port, and other documents are unchanged.
func TestInjectionIsSound(t *testing.T) {
	const scenes = 400
	r := rand.New(rand.NewPCG(1, 15))
	done := 0
	for i := range scenes {
		s := randomScene(r)
		in := s.yaml()
		first, err := Stream([]byte(in), s.options)
		if err != nil {
			continue
		}
		done++
		if problem := s.check(in, first); problem != "" {
			t.Fatalf("scene %d: %s\noptions %+v\n--- in\n%s\n--- out\n%s", i, problem, s.options, in, first.Output)
		}
	}
	if done < scenes/3 {
		t.Errorf("only %d of %d scenes could be injected", done, scenes)
	}
}

func (s *scene) check(in string, first *Result) string {
	again, err := Stream(first.Output, s.options)
	switch {
	case err != nil:
		return "not again: " + err.Error()
	case !bytes.Equal(again.Output, first.Output) || len(again.Changed) > 0:
		return fmt.Sprintf("changed again: %v\n%s", again.Changed, again.Output)
	case !bytes.HasSuffix(first.Output, []byte("---\napiVersion: v1\nkind:   ConfigMap\nmetadata: {name:  left}\n")):
		return "another document changed"
	case !bytes.Contains(first.Output, []byte("# the one")) || !bytes.HasPrefix(first.Output, []byte("# made up\n")):
		return "a comment is gone"
	}
	before, after := podOf(in), podOf(string(first.Output))
	app, appBefore := after.container("app"), before.container("app")
	if problem := distinct(after); problem != "" {
		return problem
	}
	if probe := get(app, "readinessProbe", "httpGet", "port"); s.probed != "" && resolve(app, text(probe)) != resolve(appBefore, s.probed) {
		return "the probe asks another port"
	}
	if in := after.container(inboundName); in != nil {
		if problem := s.checkInbound(in, before, after, first.Output); problem != "" {
			return problem
		}
	} else if s.options.inbound() {
		return "no inbound sidecar"
	}
	return s.checkOutbound(after)
}

// checkInbound follows every Service to a port, and the sidecar to the application.
func (s *scene) checkInbound(sidecar *yaml.Node, before, after *pod, out []byte) string {
	appBefore := before.container("app")
	listen, upstream := portOf(variable(sidecar, "RETRYPROXY_LISTEN")), portOf(variable(sidecar, "RETRYPROXY_UPSTREAM"))
	if !slices.ContainsFunc(s.ports, func(p scenePort) bool { return p.number == upstream }) {
		return fmt.Sprintf("the upstream's port %d is none of the application's", upstream)
	}
	docs, err := parse(out)
	if err != nil {
		return err.Error()
	}
	at := 0
	for _, d := range docs {
		if text(get(d.root, "kind")) != "Service" {
			continue
		}
		was := resolve(appBefore, s.services[at])
		is := after.resolve(text(get(items(get(d.root, "spec", "ports"))[0], "targetPort")))
		at++
		if to := text(get(items(get(d.root, "spec", "ports"))[0], "targetPort")); !s.options.LeadServices && !servedByBoth(before, after, to) {
			return fmt.Sprintf("Service %d targets %s, which Pods without a sidecar do not serve", at-1, to)
		}
		if want := map[bool]int{true: listen, false: was}[was == upstream && (s.options.LeadServices || s.named(upstream))]; is != want {
			return fmt.Sprintf("Service %d led to %d and leads to %d, want %d", at-1, was, is, want)
		}
	}
	for _, p := range s.ports {
		if p.host && p.number == upstream && !strings.Contains(string(out), fmt.Sprintf("containerPort: %d, hostPort: %d", listen, p.number)) {
			return "the host port goes past the sidecar"
		}
	}
	if grace, err := strconv.Atoi(text(get(after.spec, "terminationGracePeriodSeconds"))); err != nil || grace < gracePeriod {
		return "the grace period is too short"
	}
	return ""
}

// named reports whether the application's port has a name.
func (s *scene) named(port int) bool {
	return slices.ContainsFunc(s.ports, func(p scenePort) bool { return p.number == port && p.name != "" })
}

// servedByBoth reports whether a Service's target leads to the application in the Pod before and to
// a listener in the Pod after.
func servedByBoth(before, after *pod, target string) bool {
	old := before.resolve(target)
	return slices.ContainsFunc(before.declared(), func(a appPort) bool { return a.number == old }) && after.resolve(target) != 0
}

func (s *scene) checkOutbound(after *pod) string {
	sidecar := after.container(outboundName)
	if wanted := s.options.outbound(); wanted != (sidecar != nil) {
		return fmt.Sprintf("outbound sidecar there: %v", sidecar != nil)
	}
	for i := range s.urls {
		name := fmt.Sprintf("URL_%d", i)
		value := variable(after.container("app"), name)
		pointed := strings.HasPrefix(value, "http://127.0.0.1:") && strings.HasSuffix(value, fmt.Sprintf("/v%d?q=1", i))
		if wanted := slices.Contains(s.options.OutboundEnv, name); wanted != pointed || !wanted && value != fmt.Sprintf("https://u%d.example.com/v%d?q=1", i, i) {
			return name + " is " + value
		}
		if !pointed {
			continue
		}
		port := strings.TrimSuffix(strings.TrimPrefix(value, "http://127.0.0.1:"), fmt.Sprintf("/v%d?q=1", i))
		if upstream := upstreamOf(sidecar, port); upstream != fmt.Sprintf("https://u%d.example.com", i) {
			return fmt.Sprintf("%s leads to %q", name, upstream)
		}
	}
	return ""
}

// upstreamOf returns where the sidecar forwards requests for the port.
func upstreamOf(sidecar *yaml.Node, port string) string {
	for _, e := range items(get(sidecar, "env")) {
		if prefix, ok := strings.CutSuffix(text(get(e, "name")), "LISTEN"); ok && text(get(e, "value")) == "127.0.0.1:"+port {
			return variable(sidecar, prefix+"UPSTREAM")
		}
	}
	return ""
}

func podOf(stream string) *pod {
	docs, err := parse([]byte(stream))
	if err != nil {
		panic(err)
	}
	template := get(docs[0].root, templatePath[text(get(docs[0].root, "kind"))]...)
	return &pod{template: template, metadata: get(template, "metadata"), spec: get(template, "spec")}
}

// resolve resolves a port in a container's probe as the kubelet does.
func resolve(c *yaml.Node, port string) int {
	if n, err := strconv.Atoi(port); err == nil {
		return n
	}
	for _, e := range items(get(c, "ports")) {
		if text(get(e, "name")) == port {
			n, _ := strconv.Atoi(text(get(e, "containerPort")))
			return n
		}
	}
	return 0
}

// resolve resolves a Service's target port as all versions do: names in a native sidecar are
// ignored.
func (p *pod) resolve(port string) int {
	for _, c := range items(get(p.spec, "containers")) {
		if n := resolve(c, port); n != 0 {
			return n
		}
	}
	return 0
}

// distinct checks that no listener of a sidecar has the port of another or of the application.
func distinct(p *pod) string {
	used := map[int]string{}
	for _, c := range p.all() {
		for _, e := range items(get(c, "env")) {
			name := text(get(e, "name"))
			if !strings.HasPrefix(name, "RETRYPROXY_") || !strings.HasSuffix(name, "LISTEN") {
				continue
			}
			port := portOf(text(get(e, "value")))
			if other, taken := used[port]; taken {
				return fmt.Sprintf("%s and %s have port %d", other, name, port)
			}
			used[port] = name
		}
	}
	upstream := portOf(variable(p.container(inboundName), "RETRYPROXY_UPSTREAM"))
	if other, taken := used[upstream]; taken {
		return fmt.Sprintf("%s has the application's port %d", other, upstream)
	}
	return ""
}
