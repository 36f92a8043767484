package inject

import (
	"errors"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v4"
)

// get follows keys through mappings and returns the value, or nil if a key is missing.
func get(n *yaml.Node, path ...string) *yaml.Node {
	for _, key := range path {
		_, n = entry(n, key)
	}
	return n
}

// entry returns the position of the key in a mapping's content, and its value; -1 and nil if it is
// missing.
func entry(n *yaml.Node, key string) (int, *yaml.Node) {
	if n == nil || n.Kind != yaml.MappingNode {
		return -1, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return i, n.Content[i+1]
		}
	}
	return -1, nil
}

// text returns a scalar's value, "" for anything else.
func text(n *yaml.Node) string {
	if isNull(n) || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}

// items returns the items of a sequence, nil for anything else.
func items(n *yaml.Node) []*yaml.Node {
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	return n.Content
}

func str(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}

func number(v int) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(v)}
}

// put sets a key of a mapping. A new value inherits the comments of the value that it replaces.
func put(n *yaml.Node, key string, value *yaml.Node) {
	if i, old := entry(n, key); i >= 0 {
		value.HeadComment, value.LineComment, value.FootComment = old.HeadComment, old.LineComment, old.FootComment
		n.Content[i+1] = value
		return
	}
	n.Content = append(n.Content, str(key), value)
}

// remove removes a key of a mapping.
func remove(n *yaml.Node, key string) {
	if i, _ := entry(n, key); i >= 0 {
		n.Content = slices.Delete(n.Content, i, i+2)
	}
}

func isNull(n *yaml.Node) bool { return n == nil || n.Tag == "!!null" }

// within returns the mapping or sequence at the key. It is created if it is missing or null.
func within(n *yaml.Node, key string, kind yaml.Kind) *yaml.Node {
	if _, v := entry(n, key); v != nil && v.Kind == kind {
		if len(v.Content) == 0 {
			v.Style = 0 // {} and [] become blocks
		}
		return v
	}
	made := &yaml.Node{Kind: kind, Tag: map[yaml.Kind]string{yaml.MappingNode: "!!map", yaml.SequenceNode: "!!seq"}[kind]}
	put(n, key, made)
	return made
}

// build returns a node of a Go value.
func build(v any) *yaml.Node {
	n := &yaml.Node{}
	if err := n.Encode(v); err != nil {
		panic(err) // only our own structs are passed
	}
	return n
}

// fromYAML returns a node of a text of ours.
func fromYAML(text string) *yaml.Node {
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(text), &n); err != nil {
		panic(err)
	}
	return n.Content[0]
}

// maxNodes limits the size of a document after aliases are expanded. The largest real workloads
// have some thousand nodes.
const maxNodes = 200_000

var errTooLarge = errors.New("too large after its YAML aliases are expanded")

// expand replaces aliases and merge keys with copies in the same place, so that a change in one place
// does not affect another. Only documents that are changed need it.
func expand(n *yaml.Node) error {
	left := maxNodes
	return expandWithin(n, false, &left)
}

// expandWithin expands a node. inFlow reports whether it is in a flow mapping or sequence.
func expandWithin(n *yaml.Node, inFlow bool, left *int) error {
	if *left--; *left < 0 {
		return errTooLarge
	}
	inFlow = inFlow || n.Style&yaml.FlowStyle != 0
	for i, child := range n.Content {
		if child.Kind == yaml.AliasNode {
			c := clone(child.Alias, inFlow, left)
			c.HeadComment, c.LineComment, c.FootComment = child.HeadComment, child.LineComment, child.FootComment
			n.Content[i] = c
		}
		if err := expandWithin(n.Content[i], inFlow, left); err != nil {
			return err
		}
	}
	n.Anchor = ""
	if n.Kind == yaml.MappingNode {
		mergeKeys(n)
	}
	return nil
}

// clone copies a tree. It stops at the limit; the caller checks whether the limit was reached. A copy
// for a flow mapping has no comments, because each would break the line.
func clone(n *yaml.Node, inFlow bool, left *int) *yaml.Node {
	c := *n
	c.Content = nil
	if inFlow {
		c.HeadComment, c.LineComment, c.FootComment = "", "", ""
	}
	for _, child := range n.Content {
		if *left--; *left < 0 {
			break
		}
		c.Content = append(c.Content, clone(child, inFlow, left))
	}
	return &c
}

// mergeKeys puts the entries of "<<" in its place. The mapping's own keys take precedence, then those
// of earlier sources.
func mergeKeys(n *yaml.Node) {
	taken := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Tag != "!!merge" {
			taken[n.Content[i].Value] = true
		}
	}
	var all []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Tag != "!!merge" {
			all = append(all, n.Content[i], n.Content[i+1])
			continue
		}
		sources := []*yaml.Node{n.Content[i+1]}
		if n.Content[i+1].Kind == yaml.SequenceNode {
			sources = n.Content[i+1].Content
		}
		for _, s := range sources {
			for j := 0; j+1 < len(s.Content); j += 2 {
				if key := s.Content[j].Value; !taken[key] {
					taken[key] = true
					all = append(all, s.Content[j], s.Content[j+1])
				}
			}
		}
	}
	n.Content = all
}
