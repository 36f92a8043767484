// Package gatewayapi converts HTTPRoutes of the Kubernetes Gateway API to settings.
//
// Convert reads a file of Kubernetes objects and returns the equivalent variables. It reads
// HTTPRoute, the retry budget of XBackendTrafficPolicy, and Backend of Envoy Gateway. It never
// approximates: what has no exact equivalent is in Result.Lost, with its position in the file and
// what is left out because of it. docs/how-to/gateway-api.md lists what is supported.
//
// The types are our own and contain only the fields that are read; see
// docs/decisions/0031-gateway-api.md. Other fields are reported in Result.Lost.
package gatewayapi

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/retryproxy/retryproxy/internal/config/configfile"
)

// Result is the content of a file as settings.
type Result struct {
	Routes []string          // names of the routes, in the order of their precedence
	Pairs  []configfile.Pair // their variables
	// CatchAll is the upstream of the rule that takes every request, "" if there is none.
	CatchAll string
	Lost     []Lost
}

// Lost is something without an equivalent. LeftOut is what Pairs lack because of it.
type Lost struct{ Place, Why, LeftOut string }

// String returns the position and the reason.
func (l Lost) String() string { return l.Place + ": " + l.Why }

// Convert reads Kubernetes objects in YAML or JSON: one or several documents, including lists. Its
// error joins everything that a Kubernetes API server would reject.
func Convert(content []byte) (Result, error) {
	f := &file{}
	f.read(content)
	if f.values > maxValues {
		return Result{}, errTooMany
	}
	c := newConverter(f)
	c.convert()
	return c.result, errors.Join(f.errs...)
}

// file holds the objects of a file.
type file struct {
	routes   []*httpRoute
	policies []*trafficPolicy
	backends []*backend
	lost     []Lost
	errs     []error
	values   int // decoded so far
}

func (f *file) read(content []byte) {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	for number := 1; ; number++ {
		var document yaml.Node
		switch err := decoder.Decode(&document); {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			f.errs = append(f.errs, fmt.Errorf("document %d: %w", number, err))
			return
		}
		for _, root := range document.Content {
			f.object(root, fmt.Sprintf("document %d", number), 0)
		}
	}
}

// maxListDepth is the maximum nesting of lists; kubectl never nests them.
const maxListDepth = 2

// The kinds that are read, by their API group.
const (
	groupGateway      = "gateway.networking.k8s.io"
	groupExperimental = "gateway.networking.x-k8s.io"
	groupEnvoy        = "gateway.envoyproxy.io"
)

// object reads one object, or the objects of a list.
func (f *file) object(n *yaml.Node, where string, depth int) {
	n = deref(n)
	if isNull(n) || !f.count() {
		return
	}
	kind, version := text(field(n, "kind")), text(field(n, "apiVersion"))
	if n.Kind != yaml.MappingNode || kind == "" || version == "" {
		f.errs = append(f.errs, fmt.Errorf("%s (line %d): expected a Kubernetes object with apiVersion and kind", where, n.Line))
		return
	}
	if items := field(n, "items"); items != nil && items.Kind == yaml.SequenceNode && depth < maxListDepth {
		for i, item := range items.Content {
			if f.values > maxValues {
				return
			}
			f.object(item, fmt.Sprintf("%s, items[%d]", where, i), depth+1)
		}
		return
	}
	meta := field(n, "metadata")
	d := &decoder{file: f, where: fmt.Sprintf("%s, %s %s", where, kind, cmp.Or(nameOf(meta), "without a name"))}
	switch version + " " + kind {
	case groupGateway + "/v1 HTTPRoute", groupGateway + "/v1beta1 HTTPRoute":
		f.routes = append(f.routes, decodeAs[httpRoute](d, n))
	case groupExperimental + "/v1alpha1 XBackendTrafficPolicy":
		f.policies = append(f.policies, decodeAs[trafficPolicy](d, n))
	case groupEnvoy + "/v1alpha1 Backend":
		f.backends = append(f.backends, decodeAs[backend](d, n))
	default:
		why := fmt.Sprintf("%s of %s is not read; HTTPRoute of %s/v1 is", kind, version, groupGateway)
		f.lost = append(f.lost, Lost{place{where: d.where, line: n.Line}.String(), why, "the object"})
	}
}

// nameOf returns namespace/name of an object, without the namespace if it has none.
func nameOf(meta *yaml.Node) string {
	name, namespace := text(field(meta, "name")), text(field(meta, "namespace"))
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// inOrder sorts routes as Gateway API breaks ties: the oldest first, then by namespace and name. An
// object without a creation time counts as the newest, because it is not in a cluster yet.
func inOrder(routes []*httpRoute) []*httpRoute {
	sorted := slices.Clone(routes)
	slices.SortStableFunc(sorted, func(a, b *httpRoute) int {
		return cmp.Or(
			cmp.Compare(cmp.Or(a.Metadata.Created, "~"), cmp.Or(b.Metadata.Created, "~")),
			cmp.Compare(a.Metadata.namespace(), b.Metadata.namespace()),
			cmp.Compare(a.Metadata.Name, b.Metadata.Name))
	})
	return sorted
}
