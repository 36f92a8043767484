package inject

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v4"
)

// Pod injects into one Pod that has the annotation retryproxy.io/inject: "true", and returns the
// changed Pod, or nil without the annotation. The object is as encoding/json decodes it, with
// numbers as json.Number; it is not changed. The error says what is impossible. Services are
// unknown here, so the port needs a name, or the options must say that the Service is elsewhere.
func Pod(object map[string]any, o Options) (injected map[string]any, notes []string, err error) {
	root := fromJSON(object)
	metadata := get(root, "metadata")
	if yes, _, err := Wanted(metadata); err != nil || !yes {
		return nil, nil, err
	}
	o, err = o.With(metadata)
	if err != nil {
		return nil, nil, err
	}
	p := &pod{Options: o, template: root, metadata: metadata, spec: get(root, "spec")}
	if p.spec == nil {
		return nil, nil, errors.New("no spec")
	}
	if err := p.inject(); err != nil {
		return nil, nil, err
	}
	changed, _ := toJSON(root).(map[string]any)
	return changed, p.notes, nil
}

// fromJSON makes a node of what encoding/json decodes. It does not go through YAML text, whose
// escapes differ from those of JSON.
func fromJSON(v any) *yaml.Node {
	switch v := v.(type) {
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, fromJSON(v[key]))
		}
		return n
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, item := range v {
			n.Content = append(n.Content, fromJSON(item))
		}
		return n
	case string:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v}
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v)}
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!float", Value: v.String()}
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}
	}
	panic(fmt.Sprintf("inject: %T does not come from JSON", v))
}

// toJSON is the reverse of fromJSON. Numbers become json.Number again.
func toJSON(n *yaml.Node) any {
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = toJSON(n.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		s := make([]any, len(n.Content))
		for i, item := range n.Content {
			s[i] = toJSON(item)
		}
		return s
	}
	switch n.ShortTag() {
	case "!!bool":
		return n.Value == "true"
	case "!!int", "!!float":
		return json.Number(n.Value)
	case "!!null":
		return nil
	}
	return n.Value
}
