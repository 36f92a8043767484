package retryafter_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/retryafter"
)

// said is a header value and the wait that it asks for.
type said struct {
	value string
	wait  time.Duration
}

// draw returns a header value in one of the forms that its kind allows. at is the time from which
// the upstream counts: that of its Date header, or the local time without one.
func draw(r *rand.Rand, at time.Time, order, milliseconds bool) said {
	ms := time.Duration(r.Int64N(400_000)) * time.Millisecond
	seconds := ms.Truncate(time.Second)
	switch form := r.IntN(4); {
	case milliseconds && form < 2:
		return said{fmt.Sprint(ms.Milliseconds()), ms}
	case milliseconds:
		return said{fmt.Sprintf("%d.5", ms.Milliseconds()), ms + 500*time.Microsecond}
	case form == 0:
		return said{fmt.Sprint(int(seconds.Seconds())), seconds}
	case form == 1:
		return said{fmt.Sprintf("%.3f", ms.Seconds()), ms}
	}
	until := at.Add(ms - 30*time.Second).UTC() // may be over
	whole := until.Truncate(time.Second)
	left := func(t time.Time) time.Duration { return max(t.Sub(at), 0) }
	if order {
		return said{whole.Format(http.TimeFormat), left(whole)}
	}
	switch r.IntN(5) {
	case 0:
		return said{ms.String(), ms}
	case 1:
		return said{until.Format(time.RFC3339Nano), left(until)}
	case 2:
		return said{fmt.Sprint(whole.Unix()), left(whole)}
	case 3:
		until = until.Truncate(time.Millisecond)
		return said{fmt.Sprint(until.UnixMilli()), left(until)}
	}
	return said{whole.Format(http.TimeFormat), left(whole)}
}

// A retry waits for the longest of what the response says, and for no more than that and the jitter
// of docs/reference/retry-after.md. The expected wait is computed from what the headers were made
// of, not by the package. An order takes precedence over resets, and a reset counts only if nothing
// is left of its rate limit.
func TestARetryWaitsForTheLatestAndNotLonger(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	local := time.Date(2026, time.March, 1, 12, 0, 0, 123_456_789, time.UTC)
	p := policy.Policy{MaxRetries: 9, Backoff: backoff.FullJitter{Base: 100 * time.Millisecond, Max: 10 * time.Second, Factor: 2}}
	var err error
	if p.RetryOn, err = policy.ParseRetryOn("429"); err != nil {
		t.Fatal(err)
	}
	orders, resets, jittered := 0, 0, 0
	for range 20_000 {
		h := retryafter.Headers{Now: local}
		at := local
		if r.IntN(2) == 0 { // the upstream's clock is wrong by up to 50 minutes
			at = local.Truncate(time.Second).Add(time.Duration(r.IntN(6000)-3000) * time.Second)
			h.Date = []byte(at.Format(http.TimeFormat))
		}
		var head []string
		add := func(name, value string) {
			h.Add([]byte(name), []byte(value))
			head = append(head, name+": "+value)
		}
		var asked, renewed []time.Duration
		for range r.IntN(3) {
			name := []string{"Retry-After", "X-RateLimit-Retry-After", "Retry-After-Ms", "X-Amz-Retry-After"}[r.IntN(4)]
			s := draw(r, at, true, strings.HasSuffix(name, "-Ms") || name == "X-Amz-Retry-After")
			add(name, s.value)
			asked = append(asked, s.wait)
		}
		for _, i := range r.Perm(4)[:r.IntN(4)] {
			remaining := []string{"X-RateLimit-Remaining", "X-RateLimit-Remaining-Tokens", "Anthropic-RateLimit-Output-Tokens-Remaining", "RateLimit-Remaining"}[i]
			s, left := draw(r, at, false, false), []string{"0", "0", "7"}[r.IntN(3)]
			add(strings.Replace(remaining, "Remaining", "Reset", 1), s.value)
			add(remaining, left)
			if left == "0" {
				renewed = append(renewed, s.wait)
			}
		}
		want := asked
		switch {
		case len(asked) > 0:
			orders++
		case len(renewed) > 0:
			want = renewed
			resets++
		default:
			continue
		}
		a := policy.Result{Status: 429}
		if a.RetryAfter, a.HasRetryAfter = h.Asked(); !a.HasRetryAfter {
			a.RetryAfter, a.HasRetryAfter = h.Renewed()
		}
		s := policy.Situation{MaxRetries: 9, Retries: r.IntN(9), Safe: true, Left: time.Hour}
		d := p.Decide(&a, &s, nil, 0, r)
		least, jitter := slices.Max(want), backoff.CeilingOf(p.Backoff, backoff.Step{Retry: s.Retries}, r)
		if !d.Retry || d.Wait < least || d.Wait > least+jitter {
			t.Fatalf("Date %q\n%s\nretry %v (%v) after %v, want %v and up to %v of jitter", h.Date, strings.Join(head, "\n"), d.Retry, d.Why, d.Wait, least, jitter)
		}
		if d.Wait > least {
			jittered++
		}
	}
	if orders < 5000 || resets < 2000 || jittered < 5000 {
		t.Errorf("%d orders, %d resets and %d waits with jitter only", orders, resets, jittered)
	}
}
