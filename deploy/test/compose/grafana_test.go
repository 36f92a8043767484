package compose

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// variables stand for what a person would choose on the dashboard.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$namespace", ".*", "$job", ".*", "$instance", ".*", "$route", ".*", "$upstream", ".*")

// shown are panels that have something to show after the faults.
var shown = []string{"Requests a second", "Recovered by retries", "Proxies", "Outcomes of requests", "Retries by reason", "Circuit breakers opened, by evidence",
	"Responses before retries hide failures", "How long clients wait", "Versions"}

// dashboardShows asks Grafana for the provisioned dashboard and sends all of
// its queries through the provisioned data source, as a browser would.
func (s *stack) dashboardShows(t *testing.T) {
	var found []struct{ UID, Title string }
	s.ask(t, http.MethodGet, "grafana", "/api/search", &found)
	if len(found) != 1 || found[0].UID != "retryproxy" {
		t.Fatalf("dashboards %v", found)
	}
	var got struct {
		Dashboard struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
	}
	s.ask(t, http.MethodGet, "grafana", "/api/dashboards/uid/retryproxy", &got)
	left := slices.Clone(shown)
	for _, p := range got.Dashboard.Panels {
		for _, target := range p.Targets {
			var answer series
			s.ask(t, http.MethodGet, "grafana", "/api/datasources/proxy/uid/prometheus"+query(variables.Replace(target.Expr)), &answer)
			if answer.Status != "success" {
				t.Errorf("%s: %s", p.Title, answer.Status)
			}
			if len(answer.Data.Result) > 0 {
				left = slices.DeleteFunc(left, func(title string) bool { return title == p.Title })
			}
		}
	}
	if len(left) > 0 {
		t.Errorf("panels with nothing to show: %v", left)
	}
}
