package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

// balanceOf sends the account of a key to the engine.
func (f *Fleet) balanceOf(ctx context.Context, key uint64, a *ratelimit.Account) (*ratelimit.Balance, error) {
	wants, next := 0, ratelimit.Cost{}
	if a.Next != nil {
		wants, next = 1, *a.Next
	}
	args := []any{
		f.member, a.Sent.Attempts, a.Sent.Input, a.Sent.Output, a.Settled.Input, a.Settled.Output, a.Fixed.Count, decimal(a.Fixed.PerSecond()),
		wants, next.Input, next.Output, len(a.Learnt), a.Probe.Microseconds(), a.Soon.Microseconds(),
		usageNews(&a.Usage),
	}
	for i := range a.Learnt {
		args = appendObservation(args, &a.Learnt[i])
	}
	reply, err := f.link.run(ctx, accountScript, []string{f.key("tokens", key)}, args...)
	if err != nil {
		return nil, err
	}
	return parseBalance(reply)
}

// usageNews returns n for accountScript; "" if there is none.
func usageNews(n *ratelimit.UsageNews) string {
	if *n == (ratelimit.UsageNews{}) {
		return ""
	}
	var b []byte
	for i := range n.Ratios {
		r := &n.Ratios[i]
		b = fmt.Appendf(b, "%d %s %s ", r.Attempts, decimal(r.Estimated), decimal(r.Used))
	}
	return string(fmt.Appendf(b, "%d %s %d %d", n.Outputs, decimal(n.Typical), n.Rejected, n.Accepted))
}

// parseUsage parses what accountScript returns of it.
func parseUsage(text string) (s ratelimit.UsageState, err error) {
	if text == "" {
		return s, nil
	}
	var all []any
	for i := range s.Ratios {
		all = append(all, &s.Ratios[i].Estimated, &s.Ratios[i].Used)
	}
	_, err = fmt.Sscan(text, append(all, &s.Typical, &s.Doubt)...)
	return s, err
}

func appendObservation(args []any, o *ratelimit.Observation) []any {
	level, rejected := "", 0
	if n, ok := o.Level(); ok {
		level = decimal(n)
	}
	if o.Rejected {
		rejected = 1
	}
	return append(args, o.Row, uint8(o.Kind), uint8(o.Model), decimal(o.Limit), decimal(o.Remaining), o.Reset.Microseconds(), level, o.Order(), rejected, o.Took.Microseconds())
}

// parseBalance reads what accountScript returns.
func parseBalance(reply any) (*ratelimit.Balance, error) {
	list, _ := reply.([]any)
	if len(list) < 4 {
		return nil, errReply
	}
	granted, ok := list[0].(int64)
	wait, err := number(list[1])
	order, err2 := number(list[2])
	text, isText := list[3].(string)
	usage, err3 := parseUsage(text)
	if !ok || !isText || errors.Join(err, err2, err3) != nil {
		return nil, errReply
	}
	b := &ratelimit.Balance{Granted: granted == 1, Wait: micros(wait), Order: uint64(max(order, 0)), Usage: usage}
	for _, each := range list[4:] {
		text, _ := each.(string)
		s, err := parseBucket(text)
		if err != nil {
			return nil, errReply
		}
		b.Buckets = append(b.Buckets, s)
	}
	return b, nil
}

func number(v any) (int64, error) {
	text, _ := v.(string)
	return strconv.ParseInt(text, 10, 64)
}

// micros returns n microseconds, within bounds; below 0 means none.
func micros(n int64) time.Duration {
	return time.Duration(max(-1, min(n, math.MaxInt64/2000))) * time.Microsecond
}

func parseBucket(text string) (s ratelimit.BucketState, err error) {
	var full, ends, free, length int64
	_, err = fmt.Sscan(text, &s.Row, &s.Kind, &s.Model, &s.Limit, &s.Level, &s.Rate, &s.Others, &s.Corrected, &full, &ends, &free, &length)
	s.FullIn, s.EndsIn, s.FreeIn, s.Length = micros(full), micros(ends), micros(free), micros(length)
	return s, err
}
