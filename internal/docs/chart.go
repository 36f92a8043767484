package docs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/retryproxy/retryproxy/internal/config"
)

// chartSchema is the schema of the Helm chart's values. chartOwn are the settings that the chart
// sets itself, so that users cannot.
const chartSchema = "deploy/helm/retryproxy/values.schema.json"

var chartOwn = []string{"LISTEN", "ADMIN_LISTEN", "CONFIG_FILE"}

// ChartSettings returns the part of the chart's schema that lists the settings, as one pattern,
// since route names are arbitrary.
func ChartSettings() string {
	var global, route []string
	for _, s := range config.Reference() {
		if s.Scope != config.ScopeMatcher && !slices.Contains(chartOwn, s.Key) {
			global = append(global, s.Key)
		}
		if s.Scope != config.ScopeGlobal && !slices.Contains(chartOwn, s.Key) {
			route = append(route, s.Key)
		}
	}
	return fmt.Sprintf("              { \"pattern\": \"^(%s|ROUTE_[A-Z0-9_]+_(%s))$\" },\n", strings.Join(global, "|"), strings.Join(route, "|"))
}
