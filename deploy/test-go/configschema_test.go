package deploytest

import (
	"bytes"
	"os"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"
)

// The schema that editors get accepts what convert writes and marks mistakes.
func TestTheSchemaOfTheConfigurationFile(t *testing.T) {
	schema := configSchema(t)
	converted, err := program(t, "retryproxyctl", []string{
		"RETRYPROXY_UPSTREAM=http://app:3000", "RETRYPROXY_MAX_RETRIES=5", "RETRYPROXY_ACCESS_LOG=true", "RETRYPROXY_BUDGET_RATIO=0.2",
		"RETRYPROXY_RATE_LIMIT=100/s", "RETRYPROXY_ROUTES=a", "RETRYPROXY_ROUTE_A_PATH=/a,/b/*", "RETRYPROXY_ROUTE_A_RETRY_ON=5xx,429",
	}, "", "convert")
	if err != nil {
		t.Fatal(err)
	}
	for _, good := range []string{
		converted,
		"upstream: http://app:3000\nretry_on: [5xx, 429]\nrequest_headers_set: {X-Env: prod}\nbudget_ratio: 0.2\nlisten: ~\n",
		"routes: [{name: a, path: [/a, /b]}]",
	} {
		if err := validateYAML(t, schema, good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		"max_retrys: 3", "max_retries: many", "max_retries: 101", "access_log: maybe", "position: inwards", "path: /a",
		"routes: [{path: /a}]", "routes: [{name: a, listen_backlog: 3}]", "routes: a", "config_file: x",
	} {
		if validateYAML(t, schema, bad) == nil {
			t.Errorf("%s passes", bad)
		}
	}
}

func configSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference/retryproxy.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	content, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("config.json", content); err != nil {
		t.Fatal(err)
	}
	return compiler.MustCompile("config.json")
}

func validateYAML(t *testing.T, schema *jsonschema.Schema, text string) error {
	t.Helper()
	converted, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(converted))
	if err != nil {
		t.Fatal(err)
	}
	return schema.Validate(value)
}
