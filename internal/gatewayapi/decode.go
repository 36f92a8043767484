package gatewayapi

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Object is embedded in every type that represents a mapping of the file. The decoder sets it.
type Object struct {
	place
	unknown []place // fields that the type does not have
}

// place is the position of a value in the file.
type place struct {
	where string // document and object
	path  string // in the object, such as spec.rules[0]
	line  int
}

func (p place) String() string {
	if p.path == "" {
		return fmt.Sprintf("%s (line %d)", p.where, p.line)
	}
	return fmt.Sprintf("%s, %s (line %d)", p.where, p.path, p.line)
}

// in returns the position of a field, for messages about a missing or invalid one.
func (p place) in(name string) place {
	p.path = join(p.path, name)
	return p
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// decoder decodes one object. It continues after an error, to report all of them.
type decoder struct {
	*file
	where string
}

// maxValues limits the size of a file after aliases are expanded: objects, keys and values. Ten
// thousand rules have fewer.
const maxValues = 250_000

// count counts one more value and returns false if there are too many.
func (f *file) count() bool {
	f.values++
	return f.values <= maxValues
}

var errTooMany = fmt.Errorf("more than %d values, aliases expanded", maxValues)

func decodeAs[T any](d *decoder, n *yaml.Node) *T {
	var v T
	d.value(n, "", reflect.ValueOf(&v).Elem())
	return &v
}

func (d *decoder) wrong(n *yaml.Node, path, format string, args ...any) {
	at := place{d.where, path, n.Line}
	d.errs = append(d.errs, fmt.Errorf("%v: %w", at, fmt.Errorf(format, args...)))
}

// value decodes n into v. Null means not set.
func (d *decoder) value(n *yaml.Node, path string, v reflect.Value) {
	if n = deref(n); isNull(n) {
		return
	}
	if !d.count() {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, path, v.Elem())
	case reflect.Struct:
		d.mapping(n, path, v)
	case reflect.Slice:
		d.list(n, path, v)
	default:
		if expected := scalar(n, v); expected != "" {
			d.wrong(n, path, "expected %s", expected)
		}
	}
}

func (d *decoder) list(n *yaml.Node, path string, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.wrong(n, path, "expected a list")
		return
	}
	for i, item := range n.Content {
		if d.values > maxValues {
			return
		}
		element, wrong := reflect.New(v.Type().Elem()).Elem(), len(d.errs)
		d.value(item, fmt.Sprintf("%s[%d]", path, i), element)
		if len(d.errs) == wrong || element.Kind() == reflect.Struct {
			v.Set(reflect.Append(v, element))
		}
	}
}

// mapping decodes a mapping into a struct that embeds Object.
func (d *decoder) mapping(n *yaml.Node, path string, v reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.wrong(n, path, "expected a mapping")
		return
	}
	own := v.Addr().Interface().(interface{ self() *Object }).self()
	own.place = place{d.where, path, n.Line}
	fields, ignored := fieldsOf(v.Type())
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if !d.count() {
			return
		}
		key := n.Content[i]
		name := key.Value
		if seen[name] {
			d.wrong(key, join(path, name), "is set twice")
			continue
		}
		seen[name] = true
		switch index, known := fields[name]; {
		case known:
			d.value(n.Content[i+1], join(path, name), v.Field(index))
		case !slices.Contains(ignored, name) && !slices.Contains(ignored, "*"):
			own.unknown = append(own.unknown, place{d.where, join(path, name), key.Line})
		}
	}
	for i := range v.NumField() {
		if tag := v.Type().Field(i).Tag; tag.Get("required") != "" && isNull(field(n, tag.Get("yaml"))) {
			d.wrong(n, join(path, tag.Get("yaml")), "must be set")
		}
	}
}

func (o *Object) self() *Object { return o }

// fieldsOf returns the fields of a type by their names in the file, and the names to ignore.
func fieldsOf(t reflect.Type) (fields map[string]int, ignored []string) {
	fields = map[string]int{}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			ignored = strings.Split(f.Tag.Get("ignore"), ",")
			continue
		}
		fields[f.Tag.Get("yaml")] = i
	}
	return fields, ignored
}

// durationForm is the form of a duration in GEP-2257.
var durationForm = regexp.MustCompile(`^([0-9]{1,5}(h|m|s|ms)){1,4}$`)

// scalar sets v, or returns what was expected instead of n.
func scalar(n *yaml.Node, v reflect.Value) (expected string) {
	tag := n.ShortTag()
	if n.Kind != yaml.ScalarNode {
		tag = ""
	}
	switch {
	case v.Type() == reflect.TypeFor[duration]():
		parsed, err := time.ParseDuration(n.Value)
		if tag != "!!str" || err != nil || !durationForm.MatchString(n.Value) {
			return "a duration such as 100ms, 10s or 1h30m"
		}
		v.SetInt(int64(parsed))
	case v.Kind() == reflect.String:
		if tag != "!!str" && tag != "!!timestamp" {
			return "a string"
		}
		v.SetString(n.Value)
	case v.Kind() == reflect.Int:
		number, err := strconv.ParseInt(n.Value, 10, 32)
		if tag != "!!int" || err != nil {
			return "a whole number"
		}
		v.SetInt(number)
	case v.Kind() == reflect.Bool:
		if tag != "!!bool" {
			return "true or false"
		}
		v.SetBool(n.Value == "true")
	}
	return ""
}

// field returns the value of a mapping's key, or nil.
func field(n *yaml.Node, key string) *yaml.Node {
	if n = deref(n); n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return deref(n.Content[i+1])
		}
	}
	return nil
}

func text(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode || isNull(n) {
		return ""
	}
	return n.Value
}

func isNull(n *yaml.Node) bool {
	return n == nil || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

func deref(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// unknowns returns the unknown fields of v and of everything in it.
func unknowns(v any) []place { return appendUnknowns(nil, reflect.ValueOf(v)) }

func appendUnknowns(all []place, v reflect.Value) []place {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			all = appendUnknowns(all, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			all = appendUnknowns(all, v.Index(i))
		}
	case reflect.Struct:
		if o, is := v.Interface().(Object); is {
			return append(all, o.unknown...)
		}
		for i := range v.NumField() {
			all = appendUnknowns(all, v.Field(i))
		}
	}
	return all
}
