// Package retry tests what is retried, when, and how often: policies, waits and deadlines, the retry budget, layered
// retries, dry runs and fallback upstreams. No request is sent more often, or later, than its route allows, and its
// client gets the upstream's last real response.
package retry

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
