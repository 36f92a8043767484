package configfile

import (
	"strings"

	"go.yaml.in/yaml/v4"
)

// Settings is the content of a YAML file.
type Settings struct {
	Values []Value
	Routes []Route
}

// Route is one entry of the list of routes.
type Route struct {
	Name   string
	Values []Value
}

// Value is one setting: its key as in the file and its value as in a variable.
type Value struct {
	Key, Text string
	Plain     bool // a number or a boolean, which needs no quotes
}

// MarshalYAML returns the file, in the order of the values. Read returns the same settings.
func MarshalYAML(s Settings) []byte {
	root := mapping(s.Values)
	if len(s.Routes) > 0 {
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, r := range s.Routes {
			list.Content = append(list.Content, mapping(append([]Value{{Key: nameKey, Text: r.Name}}, r.Values...)))
		}
		root.Content = append(root.Content, scalar(routesKey, false), list)
	}
	text, err := yaml.Dump(root, yaml.WithV3Defaults(), yaml.WithIndent(2), yaml.WithLineWidth(-1)) // lines are not folded
	if err != nil {
		panic("configfile: " + err.Error()) // nodes of strings can always be encoded
	}
	return text
}

func mapping(values []Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, v := range values {
		n.Content = append(n.Content, scalar(v.Key, false), scalar(v.Text, v.Plain))
	}
	return n
}

// scalar returns a node that is read back as the same text. plain omits the quotes of numbers and
// booleans.
func scalar(text string, plain bool) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: text}
	if !plain {
		n.SetString(text)
	}
	if oldBoolean[strings.ToLower(text)] {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// oldBoolean holds the words that YAML 1.1, and thus many tools, read as true or false.
var oldBoolean = map[string]bool{"on": true, "off": true, "yes": true, "no": true, "y": true, "n": true}
