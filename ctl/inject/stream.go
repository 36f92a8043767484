package inject

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Note is a remark about an object for the user.
type Note struct {
	Object string // kind/name
	Text   string
}

// Result is what Stream did.
type Result struct {
	Output  []byte
	Changed []string // kind/name of the workloads and Services that were changed
	Notes   []Note
}

// templatePath is the path of the Pod template in an object, by kind.
var templatePath = map[string][]string{
	"Pod":                   {},
	"Deployment":            {"spec", "template"},
	"StatefulSet":           {"spec", "template"},
	"DaemonSet":             {"spec", "template"},
	"ReplicaSet":            {"spec", "template"},
	"ReplicationController": {"spec", "template"},
	"Job":                   {"spec", "template"},
	"CronJob":               {"spec", "jobTemplate", "spec", "template"},
	"PodTemplate":           {"template"},
}

// document is one document of the stream, with the separator before it.
type document struct {
	separator, source string
	root              *yaml.Node // nil if it has only comments
	changed           bool
}

// workload is an object with a Pod template.
type workload struct {
	doc    *document
	object *yaml.Node
	pod    *pod
}

// Stream injects into every Pod template of a stream of YAML (or JSON) documents. Unchanged
// documents are returned byte for byte; changed ones keep comments and order, but not blank lines.
// All errors are returned at once, and then there is no output.
func Stream(input []byte, o Options) (*Result, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	docs, err := parse(input)
	if err != nil {
		return nil, err
	}
	r := &Result{}
	var workloads []*workload
	var services []*service
	serviceDocs := map[*service]*document{}
	for _, d := range docs {
		for _, object := range objects(d.root) {
			if w := workloadOf(d, object); w != nil {
				workloads = append(workloads, w)
			} else if s := serviceOf(object); s != nil {
				services = append(services, s)
				serviceDocs[s] = d
			} else if get(object, "spec", "template", "spec", "containers") != nil {
				r.Notes = append(r.Notes, Note{nameOf(object), "unknown kind, printed unchanged"})
			}
		}
	}
	if err := injectAll(workloads, services, o, r); err != nil {
		return nil, err
	}
	for _, s := range services {
		if s.apply() {
			serviceDocs[s].changed = true
			r.Changed = append(r.Changed, "Service/"+s.name)
		}
	}
	r.Output, err = write(docs)
	return r, err
}

func injectAll(workloads []*workload, services []*service, o Options, r *Result) error {
	var errs []error
	done := map[string]bool{}
	for _, w := range workloads {
		name := nameOf(w.object)
		wanted, err := w.prepare(o, services)
		if err == nil && wanted {
			done[name], done[strings.ToLower(name)], done[name[strings.IndexByte(name, '/')+1:]] = true, true, true
			err = w.pod.inject()
		}
		if err != nil {
			errs = append(errs, indented(name, err))
		}
		for _, note := range w.pod.notes {
			r.Notes = append(r.Notes, Note{name, note})
		}
		if w.pod.changed {
			w.doc.changed = true
			r.Changed = append(r.Changed, name)
		}
	}
	for _, only := range o.Only {
		if !done[only] && !done[strings.ToLower(only)] {
			errs = append(errs, fmt.Errorf("%s is not in the input", only))
		}
	}
	if len(workloads) == 0 {
		errs = append(errs, errors.New("the input has no Pod template"))
	}
	errs = append(errs, checkTargets(workloads, services))
	return errors.Join(errs...)
}

func indented(name string, err error) error {
	return fmt.Errorf("%s: %s", name, strings.ReplaceAll(err.Error(), "\n", "\n"+name+": "))
}

// prepare reads the options of the workload itself, and reports whether to inject into it.
func (w *workload) prepare(o Options, services []*service) (bool, error) {
	template := get(w.object, templatePath[text(get(w.object, "kind"))]...)
	if template == nil {
		w.pod = &pod{}
		return false, errors.New("no Pod template")
	}
	w.pod = &pod{
		template: template, metadata: get(template, "metadata"), spec: get(template, "spec"),
		services: services, namespace: text(get(w.object, "metadata", "namespace")), name: nameOf(w.object),
	}
	_, no, wrong := Wanted(w.pod.metadata)
	if no || !o.wants(w.object) {
		return false, wrong
	}
	var err error
	w.pod.Options, err = o.With(w.pod.metadata)
	err = errors.Join(wrong, err)
	return err == nil, err
}

// wants reports whether the options select the object; without a selection they select all.
func (o *Options) wants(object *yaml.Node) bool {
	name := nameOf(object)
	return len(o.Only) == 0 || slices.ContainsFunc(o.Only, func(only string) bool {
		return strings.EqualFold(only, name) || only == name[strings.IndexByte(name, '/')+1:]
	})
}

// checkTargets finds Pods that a Service would send to a port that they do not have.
func checkTargets(workloads []*workload, services []*service) error {
	var errs []error
	for _, s := range services {
		for _, sp := range s.ports {
			for _, w := range workloads {
				if sp.to != "" && sp.to != sp.target && s.namespace == w.pod.namespace && selects(s.selector, w.pod.labels()) && !w.pod.hasPort(sp.to) {
					errs = append(errs, fmt.Errorf("the Service %s: it must target the port %s, but it also selects %s, which has no port of that name: "+
						"inject a sidecar there too, and give the containers' ports one name that the Service targets", s.name, sp.to, nameOf(w.object)))
				}
			}
		}
	}
	return errors.Join(errs...)
}

func nameOf(object *yaml.Node) string {
	name := text(get(object, "metadata", "name"))
	if name == "" {
		name = text(get(object, "metadata", "generateName")) + "*"
	}
	return text(get(object, "kind")) + "/" + name
}

// objects returns the document's object, or those of a List.
func objects(root *yaml.Node) []*yaml.Node {
	if root == nil {
		return nil
	}
	if strings.HasSuffix(text(get(root, "kind")), "List") && get(root, "items") != nil {
		return items(get(root, "items"))
	}
	return []*yaml.Node{root}
}

func workloadOf(d *document, object *yaml.Node) *workload {
	version, kind := text(get(object, "apiVersion")), text(get(object, "kind"))
	if _, known := templatePath[kind]; !known || !slices.Contains([]string{"v1", "apps/v1", "batch/v1"}, version) {
		return nil
	}
	return &workload{doc: d, object: object}
}

func serviceOf(object *yaml.Node) *service {
	if text(get(object, "kind")) != "Service" || text(get(object, "apiVersion")) != "v1" {
		return nil
	}
	return newService(object)
}

// parse splits the stream at its separators, so that unchanged documents can be returned verbatim.
func parse(input []byte) ([]*document, error) {
	docs := []*document{{}}
	for line := range bytes.Lines(input) {
		if l := string(line); l == "---\n" || l == "---" || l == "---\r\n" || strings.HasPrefix(l, "--- ") {
			docs = append(docs, &document{separator: l})
			continue
		}
		d := docs[len(docs)-1]
		d.source += string(line)
	}
	for i, d := range docs {
		var n yaml.Node
		if strings.HasPrefix(d.source, "%") && i == 0 {
			continue // directives, which end at the first separator
		}
		if err := yaml.Unmarshal([]byte(d.source), &n); err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
		if n.Kind == yaml.DocumentNode && n.Content[0].Kind == yaml.MappingNode {
			d.root = n.Content[0]
			if err := expand(d.root); err != nil { // unchanged documents are written from their source
				return nil, fmt.Errorf("document %d: %w", i+1, err)
			}
			d.root.HeadComment = strings.Join(slices.DeleteFunc([]string{n.HeadComment, d.root.HeadComment}, func(s string) bool { return s == "" }), "\n\n")
			d.root.FootComment = strings.Join(slices.DeleteFunc([]string{d.root.FootComment, n.FootComment}, func(s string) bool { return s == "" }), "\n\n")
		}
	}
	return docs, nil
}

// write joins the documents to a stream.
func write(docs []*document) ([]byte, error) {
	var b bytes.Buffer
	for _, d := range docs {
		if d.separator != "" && b.Len() > 0 && b.Bytes()[b.Len()-1] != '\n' {
			b.WriteByte('\n')
		}
		b.WriteString(d.separator)
		if !d.changed {
			b.WriteString(d.source)
			continue
		}
		text, err := encode(d.root, indentsSequences(d.source))
		if err != nil {
			return nil, err
		}
		b.Write(text)
	}
	return b.Bytes(), nil
}

// encode keeps long lines, which the library folds at 80 columns otherwise.
func encode(root *yaml.Node, indentSequences bool) ([]byte, error) {
	return yaml.Dump(root, yaml.WithV3Defaults(), yaml.WithIndent(2), yaml.WithCompactSeqIndent(!indentSequences), yaml.WithLineWidth(-1))
}

// indentsSequences reports which of two ways a document writes lists:
//
//	key:        key:
//	- item        - item
//
// The first list decides.
func indentsSequences(source string) bool {
	before := 0
	for line := range strings.Lines(source) {
		content := strings.TrimLeft(line, " ")
		indent := len(line) - len(content)
		if strings.HasPrefix(content, "- ") {
			return indent > before
		}
		if trimmed := strings.TrimSpace(content); trimmed != "" && !strings.HasPrefix(trimmed, "#") {
			before = indent
		}
	}
	return true
}
