package webhook

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// operation is an operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// diff returns the operations that turn one object into another. It descends into maps, and
// into lists of the same length; other lists are replaced as a whole.
func diff(from, to map[string]any) []operation {
	var all []operation
	diffMap("", from, to, &all)
	return all
}

func diffMap(path string, from, to map[string]any, all *[]operation) {
	for _, key := range slices.Sorted(maps.Keys(from)) {
		if _, kept := to[key]; !kept {
			*all = append(*all, operation{Op: "remove", Path: path + "/" + escape(key)})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(to)) {
		below := path + "/" + escape(key)
		if old, there := from[key]; there {
			diffValue(below, old, to[key], all)
			continue
		}
		*all = append(*all, operation{Op: "add", Path: below, Value: to[key]})
	}
}

func diffValue(path string, from, to any, all *[]operation) {
	if same(from, to) {
		return
	}
	fromMap, ok1 := from.(map[string]any)
	toMap, ok2 := to.(map[string]any)
	if ok1 && ok2 {
		diffMap(path, fromMap, toMap, all)
		return
	}
	fromList, ok1 := from.([]any)
	toList, ok2 := to.([]any)
	if ok1 && ok2 && len(fromList) == len(toList) {
		for i := range toList {
			diffValue(path+"/"+index(i), fromList[i], toList[i], all)
		}
		return
	}
	*all = append(*all, operation{Op: "replace", Path: path, Value: to})
}

func index(i int) string {
	b, _ := json.Marshal(i) // cannot fail for an int
	return string(b)
}

func same(a, b any) bool { return reflect.DeepEqual(a, b) }

// escape escapes a key for a JSON pointer (RFC 6901 section 3).
func escape(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}
