package explain

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/policy"
)

func answers(t *testing.T, r Request) map[string]Answer {
	t.Helper()
	p, err := config.Defaults("interactive").Policy()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]Answer{}
	for _, a := range Ask(&p, r) {
		byName[a.Name] = a
	}
	if len(byName) != len(Failures()) {
		t.Fatalf("two failures of one name")
	}
	return byName
}

func TestWhatWasSentIsRepeatedOnlyWhenSafe(t *testing.T) {
	get := answers(t, Request{Method: []byte("GET"), Timeout: 30 * time.Second})
	post := answers(t, Request{Method: []byte("POST"), Timeout: 30 * time.Second})
	keyed := answers(t, Request{Method: []byte("POST"), HasKey: true, Timeout: 30 * time.Second})
	for name, want := range map[string][2]bool{ // GET or key, POST
		"connect_failure": {true, true}, "tls_failure": {true, true}, "idle_close": {true, true},
		"status_429": {true, true}, "status_429_retry_after": {true, true}, "status_503": {true, false}, "status_500": {true, false}, "status_502": {true, false}, "status_504": {true, false},
		"reset": {true, false}, "attempt_timeout": {true, false}, "malformed": {true, false},
		"status_501": {false, false}, "status_404": {false, false}, "gave_up_before": {false, false},
	} {
		if get[name].Decision.Retry != want[0] || keyed[name].Decision.Retry != want[0] || post[name].Decision.Retry != want[1] {
			t.Errorf("%s: GET %v, with key %v, POST %v", name, get[name].Decision.Retry, keyed[name].Decision.Retry, post[name].Decision.Retry)
		}
	}
}

func TestWaits(t *testing.T) {
	get := answers(t, Request{Method: []byte("GET"), Timeout: 30 * time.Second})
	for name, want := range map[string][2]time.Duration{
		"idle_close":             {0, 0},
		"reset":                  {0, 100 * time.Millisecond},
		"status_429":             {0, time.Second},
		"status_429_retry_after": {5 * time.Second, 5*time.Second + 100*time.Millisecond},
	} {
		a := get[name]
		if a.MinWait != want[0] || a.MaxWait < want[1]*9/10 || a.MaxWait > want[1] {
			t.Errorf("%s: %v to %v, want %v", name, a.MinWait, a.MaxWait, want)
		}
	}
}

func TestNestedAndTime(t *testing.T) {
	denied := answers(t, Request{Method: []byte("GET"), IsRetry: true, Layered: policy.LayeredDeny})
	if d := denied["reset"].Decision; d.Retry || d.Why != policy.ReasonLayered {
		t.Errorf("%+v", d)
	}
	short := answers(t, Request{Method: []byte("GET"), Timeout: 2 * time.Second})
	if d := short["status_429_retry_after"].Decision; d.Retry || d.Why != policy.ReasonRetryAfterTooLong {
		t.Errorf("%+v", d)
	}
}
