package webhook

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// operation is an operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// diff returns the operations that turn one object into another that has all of its keys, as
// injection removes none. It descends into objects; lists are replaced as a whole. "add" also
// replaces a value (section 4.1).
func diff(path string, from, to map[string]any) []operation {
	var all []operation
	for _, key := range slices.Sorted(maps.Keys(to)) {
		below := path + "/" + pointer.Replace(key)
		old, there := from[key]
		oldMap, wasMap := old.(map[string]any)
		newMap, isMap := to[key].(map[string]any)
		switch {
		case there && reflect.DeepEqual(old, to[key]):
		case wasMap && isMap:
			all = append(all, diff(below, oldMap, newMap)...)
		default:
			all = append(all, operation{"add", below, to[key]})
		}
	}
	return all
}

// pointer escapes a key for a JSON pointer (RFC 6901 section 3).
var pointer = strings.NewReplacer("~", "~0", "/", "~1")
