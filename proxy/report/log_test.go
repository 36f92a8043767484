package report_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/internal/requesttest"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

func accessLog(c *settings.Config) { c.AccessLog = true }

// asJSON makes two values comparable.
func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestALineSaysWhatBecameOfARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reportOf(t, "PUT /a/b?token=secret HTTP/1.1\r\nHost: shop.example:80\r\nUser-Agent: curl/8\r\nX-Request-Id: my-id\r\n"+
			"Traceparent: 00-"+traceID+"-b7ad6b7169203331-01\r\nCookie: secret\r\nContent-Length: 5\r\n\r\nhello", accessLog)
		s.Prepare()
		if piece, err := s.Body.Next(0); err != nil || string(piece) != "hello" {
			t.Fatalf("%q, %v", piece, err)
		}
		s.attempt(100*ms, responded(503), policy.Unknown)
		s.p.AttemptLog.Waited(2 * time.Second)
		time.Sleep(2 * time.Second)
		s.attempt(200*ms, responded(200), policy.ClassNone)
		s.p.Done(request.End{Status: 200, Outcome: policy.OutcomeRecovered, Reason: "in the end"}, 7)
		text := s.log.String()
		if strings.Contains(text, "secret") {
			t.Errorf("a secret in %s", text)
		}
		want := map[string]any{
			"level": "info", "msg": "request", "route": "default", "method": "PUT", "host": "shop.example:80", "path": "/a/b?...", "status": 200.0, "outcome": "recovered", "outcome_words": "recovered by a retry",
			"request_bytes": 5.0, "response_bytes": 7.0, "duration_seconds": 2.3, "peer": "127.0.0.1", "user_agent": "curl/8", "request_id": "my-id", "trace_id": traceID, "reason": "in the end",
			"attempts": []any{
				map[string]any{"address": "10.0.0.1:80", "status": 503, "class": "unknown_if_processed", "duration_seconds": 0.1, "wait_seconds": 2.0},
				map[string]any{"address": "10.0.0.1:80", "status": 200, "class": "ok", "duration_seconds": 0.2},
			},
		}
		if got := asJSON(s.line()); got != asJSON(want) {
			t.Errorf("\n%s\nwant\n%s", got, asJSON(want))
		}
	})
}

func TestAnAttemptWithoutAResponseSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reportOf(t, requesttest.Get, accessLog)
		a := s.noConnection("no\x1broom")
		refused := failed(policy.CauseDial)
		s.Time.Tick()
		s.p.AttemptDone(a, &refused, policy.NotSent)
		s.attempt(ms, failed(policy.CauseReset), policy.Unknown)
		s.p.Done(request.End{Status: 502, Outcome: policy.GaveUp(policy.ReasonNotIdempotent)}, 0)
		want := []any{
			map[string]any{"address": "10.0.0.2:80", "cause": "dial", "kind": "refused", "error": "no?room", "class": "not_sent", "duration_seconds": 0},
			map[string]any{"address": "10.0.0.1:80", "cause": "reset", "class": "unknown_if_processed", "duration_seconds": 0.001},
		}
		if got := asJSON(s.line()["attempts"]); got != asJSON(want) {
			t.Errorf("\n%s\nwant\n%s", got, asJSON(want))
		}
	})
}

// Without the access log, there is a line for whoever may complain. With it, that line is a warning.
func TestWhichRequestsHaveALine(t *testing.T) {
	complains := map[policy.Outcome]bool{
		policy.OutcomeSuccess: false, policy.OutcomeRecovered: false, policy.OutcomeClientGone: false, policy.OutcomeRequestBroken: false,
		policy.OutcomeRequestTimeout: false, policy.OutcomeRefused: false, policy.OutcomeUpgraded: false,
	}
	for _, o := range policy.AllOutcomes() {
		_, silent := complains[o]
		for _, access := range []bool{false, true} {
			s := reportOf(t, requesttest.Get, func(c *settings.Config) { c.AccessLog = access })
			s.p.Done(request.End{Status: 503, Outcome: o}, 0)
			line := s.line()
			level, msg := "warn", "request"
			switch {
			case silent && access:
				level = "info"
			case silent:
				if line != nil {
					t.Errorf("%v: %v", o, line)
				}
				continue
			case !access:
				msg = "request given up"
			}
			words := o.WordsFor("GET")
			if o == policy.OutcomeSuccess {
				words = ""
			}
			if line["level"] != level || line["msg"] != msg || line["outcome"] != o.String() || line["outcome_words"] != words {
				t.Errorf("%v, access log %v: %v", o, access, line)
			}
		}
	}
}

// Without the access log, a minute has so many lines. With it, every request has one.
func TestLinesOfAMinute(t *testing.T) {
	for _, access := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := reportOf(t, requesttest.Get, func(c *settings.Config) { c.AccessLog, c.GaveUpLogPerMinute = access, 2 })
			for range 10 {
				s.p.Done(request.End{Status: 503, Outcome: policy.OutcomeOverloaded}, 0)
				s.next(requesttest.Get)
			}
			want := 2
			if access {
				want = 10
			}
			if got := strings.Count(s.log.String(), "\n"); got != want {
				t.Errorf("access log %v: %d lines, want %d", access, got, want)
			}
			s.Settings.FlushLogs()
			if got := strings.Contains(s.log.String(), `"route":"default","count":8}`); got != !access {
				t.Errorf("access log %v: %s", access, s.log.String())
			}
		})
	}
}

func TestALineIsShortAndPrintable(t *testing.T) {
	long := strings.Repeat("x", 5000)
	s := reportOf(t, "GET /"+long+"?secret HTTP/1.1\r\nHost: a\r\nUser-Agent: \x9b"+long+"\r\n\r\n", accessLog)
	s.p.Done(request.End{Status: 200, Outcome: policy.OutcomeSuccess}, 0)
	line := s.line()
	path, agent := fmt.Sprint(line["path"]), fmt.Sprint(line["user_agent"])
	if len(path) > 1100 || !strings.HasPrefix(path, "/xxx") || !strings.HasSuffix(path, "x…?...") {
		t.Errorf("a path of %d bytes: %s", len(path), path)
	}
	if len(agent) > 300 || !strings.HasPrefix(agent, "?xxx") {
		t.Errorf("an agent of %d bytes: %q", len(agent), agent)
	}
}

// A query that is empty is still a query.
func TestALineShowsThatThereWasAQuery(t *testing.T) {
	for target, want := range map[string]string{"/a": "/a", "/a?": "/a?...", "/a?b": "/a?..."} {
		s := reportOf(t, "GET "+target+" HTTP/1.1\r\nHost: a\r\n\r\n", accessLog)
		s.p.Done(request.End{Status: 200, Outcome: policy.OutcomeSuccess}, 0)
		if got := s.line()["path"]; got != want {
			t.Errorf("%s: %v", target, got)
		}
		if got := string(s.HTTP.Path); got != "/a" {
			t.Errorf("the request has become %q", got)
		}
	}
}

// The id in the line is that of the trace that an operator finds.
func TestTheTraceOfALine(t *testing.T) {
	for name, tc := range map[string]struct {
		parent string
		traces bool
		want   string
	}{
		"ours":             {"", true, traceID},
		"ours, not its":    {"00-11111111111111111111111111111111-b7ad6b7169203331-01", true, traceID},
		"the client's":     {"00-11111111111111111111111111111111-b7ad6b7169203331-01", false, "11111111111111111111111111111111"},
		"none":             {"", false, ""},
		"none that is one": {"nonsense", false, ""},
	} {
		s := reportOf(t, "GET / HTTP/1.1\r\nHost: a\r\nTraceparent: "+tc.parent+"\r\n\r\n", func(c *settings.Config) {
			c.AccessLog = true
			if tc.traces {
				c.Tracer = new(spans)
			}
		})
		s.p.Done(request.End{Status: 200, Outcome: policy.OutcomeSuccess}, 0)
		if got := s.line()["trace_id"]; got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A wait before the first attempt belongs to none.
func TestAWaitBelongsToTheAttemptBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reportOf(t, requesttest.Get, accessLog)
		s.p.AttemptLog.Waited(time.Minute)
		s.attempt(0, responded(503), policy.Rejected)
		s.p.AttemptLog.Waited(time.Second)
		s.attempt(0, responded(200), policy.ClassNone)
		s.p.Done(request.End{Status: 200, Outcome: policy.OutcomeRecovered}, 0)
		all, _ := s.line()["attempts"].([]any)
		if len(all) != 2 || all[0].(map[string]any)["wait_seconds"] != 1.0 || all[1].(map[string]any)["wait_seconds"] != nil || all[0].(map[string]any)["class"] != "rejected" {
			t.Errorf("%v", all)
		}
	})
}
