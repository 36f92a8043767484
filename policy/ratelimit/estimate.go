package ratelimit

import (
	"math"
	"time"
)

// Estimate is what is known of an attempt before it is sent.
type Estimate struct {
	Input     int64 // tokens, by the length of the request
	Output    int64 // the most that the request allows; 0 if Unbounded
	Unbounded bool  // the request does not bound its output
}

// Ratio compares what attempts used with what was estimated. Old attempts fade out.
type Ratio struct{ Estimated, Used float64 }

// join adds what n newer attempts came to.
func (c *Ratio) join(n int64, newer Ratio) {
	part := math.Pow(ratioMemory, float64(n))
	c.Estimated, c.Used = c.Estimated*part+newer.Estimated, c.Used*part+newer.Used
}

const (
	// ratioMemory is the weight of all earlier attempts when another one is added.
	ratioMemory = 0.75
	// leastUsed and mostUsed limit the learned ratio of used to estimated tokens.
	leastUsed, mostUsed = 1.0 / 4096, 4
	// smallPart is the part of a limit below which an attempt says nothing about how the upstream
	// counts: what is replenished meanwhile could hide it.
	smallPart = 0.05
	// moreDoubt is added by an attempt that the upstream rejected although what it expects to use was
	// left. lessDoubt is the part of the doubt that an accepted attempt leaves.
	moreDoubt, lessDoubt = 0.125, 1 - 1.0/512
	// soonProbe is after how long without an attempt one is sent if only an estimate stops it.
	soonProbe = time.Second
	// typicalMemory is the weight of the mean output when another one is added.
	typicalMemory = 1 - 1.0/8
)

// add adds an attempt.
func (c *Ratio) add(estimated, used float64) {
	c.join(1, Ratio{estimated, min(used, estimated*mostUsed)})
}

// apply returns what is used of an estimate.
func (c *Ratio) apply(estimated float64) float64 {
	if c.Estimated == 0 {
		return estimated
	}
	return estimated * max(leastUsed, c.Used/c.Estimated)
}

// joinTypical returns the mean output typical after n newer ones, which add so much to it.
func joinTypical(typical float64, n int64, newer float64) float64 {
	return typical*math.Pow(typicalMemory, float64(n)) + newer
}

// usage learns what attempts use of what is estimated. An estimate counts every byte of a request
// and all the output that it allows. Vendors count less: no prompt that was cached, say, and only the
// output that was made.
//
// Two sources say so: the usage in responses, and how little is missing from a learned limit after
// an attempt. Some vendors count all the allowed output at first. They reject attempts for which the
// usage says there is enough. Each time that happens, the estimate counts for more again (doubt).
type usage struct {
	input, output Ratio           // by the usage of responses
	counted       [NumKinds]Ratio // by the headers of responses: an upper bound
	typical       float64         // mean output, for requests without a bound
	doubt         float64         // 0: estimates are calibrated; 1: they count in full

	news UsageNews // that the other processes of the key are not told yet
	told UsageNews // without an answer yet
}

// full returns an estimate without calibration.
func (u *usage) full(e Estimate) (input, output float64) {
	if e.Unbounded {
		return float64(e.Input), math.Floor(u.typical)
	}
	return float64(e.Input), float64(e.Output)
}

// expect returns what an attempt is expected to use.
func (u *usage) expect(e Estimate) Cost {
	fullInput, fullOutput := u.full(e)
	input, output := u.input.apply(fullInput), fullOutput
	if !e.Unbounded {
		output = u.output.apply(output)
	}
	input = min(input, u.bound(InputTokens, fullInput))
	output = min(output, u.bound(OutputTokens, fullOutput))
	if sum, most := input+output, u.bound(Tokens, fullInput+fullOutput); sum > most {
		input, output = input*most/sum, output*most/sum
	}
	return Cost{u.doubted(input, fullInput), u.doubted(output, fullOutput)}
}

// bound returns the most that an attempt uses by the headers of responses.
func (u *usage) bound(k Kind, estimated float64) float64 {
	if c := &u.counted[k]; c.Estimated > 0 {
		return c.apply(estimated)
	}
	return math.Inf(1)
}

// doubted returns a number of tokens between what is expected and what was estimated.
func (u *usage) doubted(expected, estimated float64) int64 {
	return int64(math.Ceil(expected + max(estimated-expected, 0)*u.doubt))
}

// learnUsage learns from the usage of a response. If no limit is known that counted it, it says nothing of how one
// counts.
func (q *Buckets) learnUsage(e Estimate, used Cost) {
	u := &q.usage
	if used.Output > 0 {
		part := float64(used.Output) * (1 - typicalMemory)
		u.typical, u.news.Typical = joinTypical(u.typical, 1, part), joinTypical(u.news.Typical, 1, part)
		u.news.Outputs++
	}
	if most := q.most(InputTokens); !math.IsInf(most, 1) {
		u.calibrate(ratioInput, float64(e.Input), float64(used.Input), most)
	}
	if most := q.most(OutputTokens); !e.Unbounded && !math.IsInf(most, 1) {
		u.calibrate(ratioOutput, float64(e.within(most).Output), float64(used.Output), most)
	}
}

// most returns the smallest known limit that counts tokens of a kind; infinity if none does.
func (q *Buckets) most(k Kind) float64 {
	most := math.Inf(1)
	for i := range q.all[:q.n] {
		if b := &q.all[i]; b.kind == k || b.kind == Tokens {
			most = min(most, b.limit)
		}
	}
	return most
}

// within returns e with no more output than a limit. No attempt uses more. Otherwise one request that allows a
// trillion tokens would make the output of all others look free.
func (e Estimate) within(limit float64) Estimate {
	if float64(e.Output) > limit {
		e.Output = int64(limit)
	}
	return e
}

// calibrate adds an attempt to a ratio, with a weight of most tokens at most. However long one request is, the
// next ones count.
func (u *usage) calibrate(ratio int, estimated, used, most float64) {
	if estimated <= 0 {
		return
	}
	if estimated > most {
		estimated, used = most, used*most/estimated
	}
	u.ratio(ratio).add(estimated, used)
	n := &u.news.Ratios[ratio]
	n.add(estimated, used)
	n.Attempts++
}

// Expect returns what an attempt is expected to use: no more than any known limit, as the upstream
// has to answer it all the same. For a configured limit the estimate counts as it is.
func (q *Buckets) Expect(e Estimate) Cost {
	e = e.within(q.most(OutputTokens))
	input, output := q.usage.full(e)
	c := Cost{int64(input), int64(output)}
	if q.n == 0 || !q.all[0].fixed {
		c = q.usage.expect(e)
	}
	for i := range q.all[:q.n] {
		switch n := int64(q.all[i].limit); q.all[i].kind {
		case Tokens:
			c = c.AtMost(n)
		case InputTokens:
			c.Input = min(c.Input, n)
		case OutputTokens:
			c.Output = min(c.Output, n)
		}
	}
	return c
}

// Calibrate learns from the headers of the response to an attempt how the upstream counts it. Call it
// before Learn, with the same arguments.
func (q *Buckets) Calibrate(now time.Duration, s *Stamp, e Estimate, r Reading, rejected bool) {
	if r.Kind == Requests || !(r.Limit > 0) || !(r.Remaining >= 0) {
		return
	}
	e = e.within(q.most(OutputTokens))
	if r.Kind != InputTokens {
		e = e.within(r.Limit)
	}
	input, output := q.usage.full(e)
	estimated := (Cost{int64(input), int64(output)}).of(r.Kind)
	if rejected {
		if r.Remaining < estimated {
			q.usage.rejected(1)
			q.usage.news.Rejected++
		}
		return
	}
	q.usage.accepted(1)
	q.usage.news.Accepted++
	b := q.find(r.Row)
	if b == nil {
		b = &bucket{}
	}
	if estimated >= r.Limit*smallPart {
		q.usage.calibrate(ratioCounted(r.Kind), estimated, max(0, b.mostCounted(now, s, &r)), min(q.most(r.Kind), r.Limit))
	}
}

// mostCounted returns the most that the upstream can have counted for an attempt. The limit lacks no
// more than that. If the attempt was sent after an earlier response, neither does what that left.
// Meanwhile some of it may have been replenished.
func (b *bucket) mostCounted(now time.Duration, s *Stamp, r *Reading) float64 {
	rate := 0.0
	if r.Model == Refilling {
		rate = max(b.rate, r.Limit/assumedPeriod.Seconds())
	}
	most := r.Limit - r.Remaining + rate*max(now-s.at, 0).Seconds()
	if b.limit == r.Limit && b.toldAt > 0 && s.at >= b.toldAt && (r.Model == Refilling || r.Remaining <= b.told) {
		most = min(most, b.told-r.Remaining+rate*(now-b.toldFrom).Seconds())
	}
	return most
}
