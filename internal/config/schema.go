package config

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// object is a JSON object. Its keys are written in alphabetical order.
type object map[string]any

// Schema returns the JSON Schema (draft 07, which editors support best) of the YAML form of the
// configuration file. It knows names, keywords and types of values; 'retryproxy check' does the
// rest.
func Schema() []byte {
	top, route := object{}, object{"name": object{"type": "string", "description": "The route's name, in metrics, logs and variables."}}
	for _, s := range Reference() {
		key := strings.ToLower(s.Key)
		if s.Scope != ScopeMatcher && s.Key != "CONFIG_FILE" && s.Key != "ROUTES" {
			top[key] = s.schema()
		}
		if s.Scope != ScopeGlobal {
			route[key] = s.schema()
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
		panic("settings: " + err.Error()) // maps of strings and numbers can always be encoded
	}
	return append(content, '\n')
}

// schema returns the schema of one setting. null means that the setting is not set.
func (s *Setting) schema() object {
	p := object{"description": s.Description()}
	if s.Example != "" {
		p["examples"] = []string{s.Example}
	}
	maps.Copy(p, s.jsonType())
	return p
}

// jsonType returns the keywords for the type of the value.
func (s *Setting) jsonType() object {
	value := object{"type": []string{"string", "number", "boolean", "null"}}
	switch {
	case len(s.OneOf) > 0:
		return object{"enum": s.OneOf}
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

// listUnits are the units of settings whose values are separated by commas.
var listUnits = []string{
	"breakeron", "errorcodes", "fault", "headernames", "hostpattern", "methods", "methodset", "pathpattern",
	"prefixes", "retryon", "statusset", "upstream",
}

func withLimits(p object, s *Setting) object {
	for key, text := range map[string]string{"minimum": s.Min, "maximum": s.Max} {
		if n, err := strconv.Atoi(text); err == nil {
			p[key] = n
		}
	}
	return p
}
