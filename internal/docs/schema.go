package docs

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/retryproxy/retryproxy/internal/config"
)

// object is a JSON object. Its keys are written in alphabetical order.
type object map[string]any

// Schema returns the JSON Schema (draft 07, which editors support best) of the YAML form of the
// configuration file. It knows names, keywords and types of values; 'retryproxy check' does the
// rest.
func Schema() []byte {
	top, route := object{}, object{"name": object{"type": "string", "description": "The route's name, in metrics, logs and variables."}}
	for _, s := range config.Reference() {
		key := strings.ToLower(s.Key)
		if s.Scope != config.ScopeMatcher && s.Key != "CONFIG_FILE" && s.Key != "ROUTES" {
			top[key] = settingSchema(&s)
		}
		if s.Scope != config.ScopeGlobal {
			route[key] = settingSchema(&s)
		}
	}
	top["routes"] = object{
		"type":        "array",
		"description": "The routes. A request that matches none uses the settings outside of this list.",
		"items":       object{"type": "object", "required": []string{"name"}, "additionalProperties": false, "properties": route},
	}
	schema := object{
		"$schema":              "http://json-schema.org/draft-07/schema#",
		"title":                "Configuration of retryproxy",
		"type":                 "object",
		"additionalProperties": false,
		"properties":           top,
	}
	content, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		panic("schema: " + err.Error()) // maps of strings and numbers can always be encoded
	}
	return append(content, '\n')
}

// settingSchema returns the schema of one setting. null means that the setting is not set.
func settingSchema(s *config.Setting) object {
	p := object{"description": s.Description()}
	if s.Example != "" {
		p["examples"] = []string{s.Example}
	}
	maps.Copy(p, jsonType(s))
	return p
}

// jsonType returns the keywords for the type of the value.
func jsonType(s *config.Setting) object {
	value := object{"type": []string{"string", "number", "boolean", "null"}}
	switch {
	case len(s.OneOf) > 0:
		return object{"enum": words(s.OneOf)}
	case s.Unit == "bool":
		return object{"type": []string{"boolean", "null"}}
	case s.Unit == "count":
		return withLimits(object{"type": []string{"integer", "null"}}, s)
	case s.Unit == "headers":
		return object{"type": []string{"string", "object", "null"}, "additionalProperties": value}
	case slices.Contains(listUnits, s.Unit):
		return object{"type": []string{"string", "number", "array", "null"}, "items": value}
	}
	return value
}

// words returns the allowed words, and each that is a number as a number too: YAML reads 1.3 as one.
func words(list []string) (all []any) {
	for _, word := range list {
		all = append(all, word)
		if n, err := strconv.ParseFloat(word, 64); err == nil {
			all = append(all, n)
		}
	}
	return all
}

// listUnits are the units of settings whose values are separated by commas.
var listUnits = []string{
	"breakeron", "errorcodes", "headernames", "hostpattern", "methods", "methodset", "pathpattern",
	"prefixes", "retryon", "statusset", "upstream",
}

func withLimits(p object, s *config.Setting) object {
	for key, text := range map[string]string{"minimum": s.Min, "maximum": s.Max} {
		if n, err := strconv.Atoi(text); err == nil {
			p[key] = n
		}
	}
	return p
}
