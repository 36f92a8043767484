package advise

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/text"
)

// adviser makes the proposals for one route. A rule may use the proposals of earlier rules.
type adviser struct {
	c       *Counts
	now     InForce
	latency latency
	seconds float64
	route   *Route

	attempt time.Duration // proposed; 0: none
	request time.Duration // proposed, or the current one; without the time in the queue
	base    time.Duration // of the backoff
	failing float64       // share of requests whose first attempt failed
}

func (a *adviser) advise() {
	a.base = a.firstWait()
	a.attemptTimeout()
	a.requestTimeout()
	a.budget()
	a.backoff()
	a.remark()
}

func (a *adviser) propose(key, value, why string, args ...any) {
	p := Proposal{Setting: config.Prefix + key, Now: a.now.Values[key], Proposed: value, Why: fmt.Sprintf(why, args...)}
	if a.route.Name != config.DefaultRoute {
		p.Setting = config.RouteVariable(a.route.Name, key)
	}
	a.route.Proposals = append(a.route.Proposals, p)
}

func (a *adviser) note(text string, args ...any) {
	a.route.Notes = append(a.route.Notes, fmt.Sprintf(text, args...))
}

// Limits of an attempt timeout. Below the first, one lost packet looks like an upstream that is
// down: Linux retransmits after 200 ms at the earliest (TCP_RTO_MIN). If all responses take the
// same time, the next small delay would exceed the timeout; so it is at least three times the
// median.
const (
	leastAttempt = 250 * time.Millisecond
	medianRoom   = 3
	mostAttempt  = 10 * time.Minute // the last edge of the histogram
)

// attemptTimeout proposes a time within which nearly all responses arrive. Sending one request in a
// thousand again costs nothing; one in ten would.
func (a *adviser) attemptTimeout() {
	t, _ := a.latency.best()
	within := a.latency.at(t.share, 0)
	d := a.latency.at(t.share, t.further)
	median := a.latency.at(0.5, 0)
	if d > mostAttempt {
		a.note("no ATTEMPT_TIMEOUT is proposed: the slowest %s of the responses take as long as the histogram's last bucket, or longer", rest(t))
		return
	}
	why := fmt.Sprintf("%s: %s %% of the responses come within %s", t.name, number(100*t.share), config.DurationText(within))
	if t.further > 0 {
		why += fmt.Sprintf("; %.0f responses say little about rarer ones, so this adds %s of the histogram", a.latency.answers, steps(t.further))
	}
	switch {
	case d < medianRoom*median && medianRoom*median >= leastAttempt:
		d = medianRoom * median
		why += fmt.Sprintf("; at least %d times the median, %s", medianRoom, config.DurationText(median))
	case d < leastAttempt:
		d = leastAttempt
		why += "; not less than " + config.DurationText(leastAttempt) + ", since a lost packet is sent again after 200ms"
	}
	if most := a.now.RequestTimeout / slowAttempts; a.patient() && d > most {
		d = most
		why += "; not more than a third of the time that clients wait"
	}
	a.attempt = d
	a.propose("ATTEMPT_TIMEOUT", config.DurationText(d), "%s", why)
	if a.now.AttemptTimeout > 0 && within >= a.now.AttemptTimeout && !a.now.DryRun {
		a.note("attempts currently time out after %s, so longer times are unknown; RETRYPROXY_DRY_RUN=true waits for them", config.DurationText(a.now.AttemptTimeout))
	}
}

func rest(t tail) string { return strconv.FormatFloat((1-t.share)*100, 'g', 2, 64) + " %" }

func steps(n int) string {
	if n == 1 {
		return "one step"
	}
	return strconv.Itoa(n) + " steps"
}

// slowAttempts is how many attempts may time out within a request, as with the defaults: one that
// hung is no reason to give up, three are.
const slowAttempts = 3

// requestTimeout proposes the time for those attempts and the waits between them, and before them
// for an upstream that is down to recover.
func (a *adviser) requestTimeout() {
	a.request = a.now.RequestTimeout
	switch {
	case a.patient():
		a.propose("REQUEST_TIMEOUT", config.DurationText(a.request), "clients are configured to wait this long, to outlast an outage")
		return
	case a.attempt == 0:
		return
	}
	n := min(slowAttempts, a.now.MaxRetries+1)
	waits := a.base * time.Duration(1<<(n-1)-1) // full jitter waits at most base x 2^k
	a.request = roundUp(time.Duration(n)*a.attempt + waits)
	whole, hold := a.request, ""
	if a.now.QueueTimeout > 0 {
		whole, hold = roundUp(a.request+a.now.QueueTimeout), ", after QUEUE_TIMEOUT ("+config.DurationText(a.now.QueueTimeout)+") for an upstream that is down"
	}
	a.propose("REQUEST_TIMEOUT", config.DurationText(whole), "%s of %s with the longest waits between them%s; %s of the requests took longer, bodies included",
		text.Plural(n, "attempt"), config.DurationText(a.attempt), hold, atMost(a.c.Request.beyond(whole)))
}

// The ratios of a budget. A smaller one would not last through a partial failure. A larger one than
// the last (the default) would let retries add load that a struggling upstream cannot take.
var ratios = []float64{0.1, 0.15, 0.2}

// budget proposes twice what ordinary failures need.
func (a *adviser) budget() {
	requests := max(1, a.c.Requests()) // slow responses may belong to requests that are not completed
	needed := float64(a.route.Retries.Made) + a.c.Outcomes["gave_up_budget_exhausted"]
	a.failing = needed / requests
	ratio := ratios[len(ratios)-1]
	for _, r := range ratios {
		if 2*a.failing <= r {
			ratio = r
			break
		}
	}
	why := "twice that is enough for ordinary failures, and"
	if 2*a.failing > ratio {
		why = "with this ratio"
	}
	a.propose("BUDGET_RATIO", number(ratio), "retries are %s of the requests; %s an upstream that is down gets at most %s times its load", percent(a.failing), why, number(1+ratio))
	if 2*a.failing > ratio {
		a.note("%s of the requests need a retry: that is more than retries should hide, and a larger budget would make an outage worse", percent(a.failing))
	}
	if a.seconds <= 0 {
		return
	}
	rate := requests / a.seconds
	perSecond := min(1, math.Ceil(10*ratio*rate)/10)
	a.propose("BUDGET_MIN_PER_SECOND", number(perSecond), "with %s requests a second, the minimum adds no more than the ratio does", number(round2(rate)))
}

// Limits of a first wait. With less, all failures of a short glitch would be retried during it; the
// second is the first wait of the cloud vendors' rule.
const (
	leastWait = 50 * time.Millisecond
	mostWait  = time.Second
	mostMax   = 32 * time.Second
	patience  = time.Minute // clients that wait longer can wait for the end of an outage
)

// firstWait returns the usual latency: before that, the cause of the first failure is probably
// still there.
func (a *adviser) firstWait() time.Duration {
	return max(leastWait, min(mostWait, a.latency.at(0.5, 0)))
}

// backoff proposes a strategy, by the causes of retries and by how long clients wait.
func (a *adviser) backoff() {
	if a.patient() {
		a.propose("BACKOFF", "additive", "clients wait %s, so their work should outlast a restart: the cloud vendors' rule, 1s, 2s, 4s and so on plus a random part of a second", config.DurationText(a.now.RequestTimeout))
		a.propose("BACKOFF_MAX", config.DurationText(mostMax), "the longest wait of that rule")
		return
	}
	a.propose("BACKOFF", "full-jitter", "the least load from clients that failed together")
	a.propose("BACKOFF_BASE", config.DurationText(a.base), "the median latency, limited to %s to %s: before that, the cause of the failure is probably still there", config.DurationText(leastWait), config.DurationText(mostWait))
	longest, of := mostMax, "the request timeout"
	if a.attempt > 0 && a.now.QueueTimeout > 0 {
		of = config.DurationText(a.request) + ", the request timeout without the time in the queue"
	}
	if a.request > 0 {
		longest = max(a.base, min(mostMax, roundDown(a.request/slowAttempts)))
	}
	a.propose("BACKOFF_MAX", config.DurationText(longest), "a third of %s: a longer wait leaves no time for the attempt", of)
	if a.mostly429() {
		a.propose("BACKOFF_THROTTLED_BASE", config.DurationText(max(a.base, min(mostWait, longest))), "most retries are for 429, which asks clients to slow down; a Retry-After is respected in any case")
	}
}

// patient reports whether clients are configured to wait long, as in the profile batch. The
// proposed request timeout is what the upstream needs, not what clients can wait.
func (a *adviser) patient() bool {
	return a.now.Values["PROFILE"] == "batch" || a.now.RequestTimeout > patience
}

func (a *adviser) mostly429() bool {
	why := a.c.Retries
	if a.now.DryRun {
		why = a.c.Would
	}
	return why["status_429"] > 0 && why["status_429"] >= sum(why, "")/2
}

// Thresholds above which advice is doubtful.
const (
	badDay      = 0.1 // of the attempts fail
	littleUse   = 10  // retries per recovered request
	enoughToSay = 20  // retries needed before their use is judged
)

// remark adds notes about doubtful advice.
func (a *adviser) remark() {
	r := a.route
	if share := float64(r.Failed) / float64(max(1, r.Attempts)); share > badDay {
		a.note("%s of the attempts failed: this period is not typical; ask again after a typical one", percent(share))
	}
	if !a.now.DryRun && r.Retries.Made >= enoughToSay && r.Retries.Made >= littleUse*max(1, r.Retries.Recovered) {
		a.note("%d retries recovered %d requests: failing requests keep failing, so more retries will not help", r.Retries.Made, r.Retries.Recovered)
	}
	if n := a.c.Outcomes["gave_up_budget_exhausted"]; n > 0 {
		a.note("the budget prevented retries of %.0f requests", n)
	}
	if a.c.Overtaken > 0 {
		a.note("%.0f attempts were overtaken by their hedges, so their duration is unknown, and the proposed ATTEMPT_TIMEOUT may be too short", a.c.Overtaken)
	}
}
