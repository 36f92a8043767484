package inject

import (
	"strings"
	"testing"
)

func TestAllThatIsWrongWithAnnotationsIsToldAtOnce(t *testing.T) {
	pod := map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{
			"retryproxy.io/inject":            "true",
			"retryproxy.io/inbuond-port":      "http",
			"retryproxy.io/inbound":           "yes",
			"retryproxy.io/cpu-request":       "lots",
			"retryproxy.io/lead-services":     "1",
			"retryproxy.io/outbound-host":     "a,b,c:0=https://user:secret@d",
			"env.retryproxy.io/MAX_RETRYS":    "3",
			"env.retryproxy.io/LISTEN":        ":1",
			"env.retryproxy.io/DRAIN_TIMEOUT": "soon",
		}},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "app"}}},
	}
	_, _, err := Pod(pod, Default("retryproxy:1"))
	if err == nil {
		t.Fatal("no error")
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the password is in\n%v", err)
	}
	for _, want := range []string{
		"retryproxy.io/inbuond-port", `retryproxy.io/inbound: "yes"`, `retryproxy.io/lead-services: "1"`, "CPU request", `outbound host "a"`, `outbound host "b"`,
		"RETRYPROXY_MAX_RETRYS", "setting RETRYPROXY_LISTEN: the injection itself sets it", "RETRYPROXY_DRAIN_TIMEOUT",
	} {
		if strings.Count(err.Error(), want) != 1 {
			t.Errorf("%d times %s in\n%v", strings.Count(err.Error(), want), want, err)
		}
	}
}
