package serve

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/internal/buildinfo"
	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

func TestEveryRefusalIsCountedByItsName(t *testing.T) {
	s, problems := config.Load([]string{"RETRYPROXY_UPSTREAM=http://localhost:1"})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	a := &app{metrics: NewMetrics(buildinfo.Build{})}
	c, err := a.configure(s)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range http1.AllRefusals() {
		for range i + 1 {
			c.Refused(r)
		}
	}
	w := httptest.NewRecorder()
	a.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for i, r := range http1.AllRefusals() {
		if want := fmt.Sprintf("retryproxy_parse_refusals_total{reason=%q} %d\n", r, i+1); !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %s", want)
		}
	}
}
