package page

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

func TestTheLastFailedConnectionIsShownForFiveMinutes(t *testing.T) {
	at := time.Now()
	u := metrics.Upstream{Name: "http://u", LastFailure: &metrics.DialFailure{At: at, Address: "10.0.0.7:80", Kind: "refused", Text: "connect: connection refused"}}
	var h history
	h.begin(at)
	if f := h.upstreamState(&u, at.Add(Window-time.Second)).LastFailure; f == nil || f.AtMS != at.UnixMilli() || f.Address != "10.0.0.7:80" || f.Kind != "refused" || f.Error != "connect: connection refused" {
		t.Errorf("%+v", f)
	}
	if f := h.upstreamState(&u, at.Add(Window)).LastFailure; f != nil {
		t.Errorf("still shown: %+v", f)
	}
}

func TestARequestsAttemptSaysWhyItFoundNoConnection(t *testing.T) {
	var j journal
	dial := &upstream.DialError{Kind: upstream.KindTLS, Addr: "10.0.0.7:443", Err: errors.New("x509: unknown\nauthority" + strings.Repeat("!", 1000))}
	j.keep(&proxy.Ended{Route: "r", Began: time.Now(), Took: time.Second, Outcome: policy.GaveUp(policy.ReasonNone), Attempts: 2, Steps: []proxy.Step{
		{Cause: policy.CauseTLS, Dial: dial}, {Status: 503},
	}})
	all, _ := j.read(time.Now())
	if len(all.Slow) != 1 {
		t.Fatalf("%+v", all)
	}
	first, second := all.Slow[0].Attempts[0], all.Slow[0].Attempts[1]
	if first.Result != "tls" || first.Address != "10.0.0.7:443" || !strings.HasPrefix(first.Error, "x509: unknown authority!!") || len(first.Error) > 300 {
		t.Errorf("%+v", first)
	}
	refused := proxy.Step{Cause: policy.CauseDial, Dial: &upstream.DialError{Kind: upstream.KindRefused, Err: errors.New("x")}}
	if got := attemptOf(&refused).Result; got != "dial_refused" {
		t.Errorf("the result is %s", got)
	}
	if second.Address != "" || second.Error != "" {
		t.Errorf("%+v", second)
	}
}

func TestARequestSaysWhatEndedItsLastFailedAttempt(t *testing.T) {
	const at = "10.0.0.7:80"
	refused := &upstream.DialError{Kind: upstream.KindRefused, Addr: at, Err: errors.New("connect: connection refused")}
	for what, c := range map[string]struct {
		steps []proxy.Step
		want  string
	}{
		"none":      {nil, ""},
		"good":      {[]proxy.Step{{Status: 200, Addr: at}}, ""},
		"status":    {[]proxy.Step{{Cause: policy.CauseReset, Class: policy.Unknown}, {Status: 503, Class: policy.Unknown, Addr: at}}, at + ": status 503"},
		"dial":      {[]proxy.Step{{Cause: policy.CauseDial, Class: policy.NotSent, Addr: at, Dial: refused}}, at + ": connect: connection refused"},
		"reset":     {[]proxy.Step{{Cause: policy.CauseReset, Class: policy.Unknown, Addr: at}}, at + ": " + policy.CauseReset.Explain()},
		"recovered": {[]proxy.Step{{Status: 502, Class: policy.Unknown, Addr: at}, {Status: 200, Addr: "10.0.0.8:80"}}, at + ": status 502"},
		"overtaken": {[]proxy.Step{{Status: 502, Class: policy.Unknown}, {Class: policy.Overtaken, Addr: at}}, "status 502"},
	} {
		if got := requestOf(&proxy.Ended{Began: noon, Steps: c.steps}).Error; got != c.want {
			t.Errorf("%s: %q, expected %q", what, got, c.want)
		}
	}
}
