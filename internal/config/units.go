package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// units maps values of the tag "unit" to descriptions of the allowed syntax, for error
// messages and docs/reference/settings.md.
var units = map[string]string{
	"address":        "host:port, :port or unix:/path",
	"addressoff":     "host:port, :port, unix:/path or off",
	"breakeron":      "statuses from 400 to 599, ranges such as 500-504, 5xx (without 501, 505, 511), gateway-error (502-504), !code to except one, connect-failure, reset and attempt-timeout, separated by commas, or auto",
	"breakerafter":   "a whole number from 1 to 1000000, or auto",
	"breakerbackoff": "a backoff strategy other than none, or auto",
	"autoduration":   "a duration with its unit, such as 250ms, 10s, 2m or 10s hard, or auto",
	"balance":        "least-requests, round-robin or hash:Name",
	"bool":           "true or false",
	"pausekey":       "none, route, header:Name, json:model, or header:Name,json:model",
	"count":          "a whole number",
	"duration":       "a duration with its unit, such as 250ms, 10s or 2m",
	"engine":         "redis://[user@]host[:port][/db], rediss:// for TLS, redis+sentinel://host,host/master, redis+cluster://host,host (or rediss+...), or unix:/path, with options such as ?scope=NAME&password_file=FILE",
	"errorcodes":     "error codes or texts, separated by commas, or none",
	"fallback":       "http://host[:port], https://host[:port], unix:/path, route:NAME, a status code and a body such as 503:busy, several separated by commas, or none",
	"headers":        "Name: value, several separated by commas, or none",
	"headernames":    "header names, separated by commas, or none",
	"header":         "a header name, or Name=value",
	"hedge":          "p50 to p99, a duration from 1ms to 10m, or off",
	"host":           "auto, preserve, upstream, or a host name",
	"hostpattern":    "host names, or *.example.com, separated by commas",
	"methods":        "method names in upper case, separated by commas",
	"statusset":      "statuses from 400 to 599 and ranges such as 520-529, separated by commas, or none",
	"methodset":      "method names in upper case, separated by commas, any, any-with-key or none",
	"number":         "a number",
	"path":           "a file's path",
	"pathpattern":    "paths that begin with /, such as /a/b, /a/*/b for any one name between, or /a/* for all below /a/, separated by commas",
	"pathprefix":     "a path that begins with / and does not end with it, such as /a",
	"prefixes":       "addresses or CIDR ranges, separated by commas",
	"probepath":      "a path that begins with /, such as /healthz, or off",
	"ratelimit":      "a number a second, minute or hour, such as 100/s, 600/m or 5000/h, auto, or off",
	"ratelimitkey":   "upstream, route, header:Name, json:model, or header:Name,json:model",
	"limit":          "adaptive, a whole number from 1 to 1000000, or off",
	"ratio":          "a number such as 0.2, a percentage such as 20%, or off",
	"retryon":        "failures, separated by commas: statuses (200 to 599), ranges such as 500-504, !status to except one, 5xx, gateway-error, rate-limited, connect-failure, reset, attempt-timeout, grpc-STATUS, retriable-header:Name[=value], or none",
	"routes":         "names of letters and digits, with dashes between them, separated by commas",
	"size":           "bytes, such as 65536, 64KiB or 1MiB",
	"strategy":       "the name of a backoff strategy",
	"upstream":       "http://host[:port][/path], the same with https (HTTP/2 or HTTP/1.1, as the upstream chooses), h2c or h2 (HTTP/2), http+srv://_http._tcp.name and the like for SRV records, unix:/path, or several of one kind, separated by commas",
	"word":           "one of the words",
	"tokenlimit":     "tokens a second, minute or hour, such as 200000/m, or off",
	"models":         "names of models, separated by commas",
}

const autoWord = "auto"

// Size is a number of bytes, never negative. It is written as plain bytes or with a unit:
// KiB, MiB, GiB (also Ki, Mi, Gi, as in Kubernetes) or kB, MB, GB (powers of 1000), in any
// case.
type Size int64

var sizeUnits = []struct {
	suffix string
	factor int64
}{ // a suffix precedes shorter ones that it ends with
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30},
	{"ki", 1 << 10}, {"mi", 1 << 20}, {"gi", 1 << 30},
	{"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9},
	{"b", 1},
}

// parseSize parses a size; fractions, signs and numbers beyond 2^63-1 are errors.
func parseSize(s string) (Size, error) {
	number, factor := strings.ToLower(s), int64(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, factor = strings.TrimSpace(rest), u.factor
			break
		}
	}
	if strings.HasPrefix(number, "+") {
		return 0, errForm
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 {
		return 0, errForm
	}
	if n > math.MaxInt64/factor {
		return 0, errors.New("too large")
	}
	return Size(n * factor), nil
}

// String returns the size in the largest binary unit that divides it.
func (s Size) String() string {
	for _, u := range []struct {
		factor Size
		name   string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if s > 0 && s%u.factor == 0 {
			return fmt.Sprintf("%d%s", s/u.factor, u.name)
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Ratio is a proportion, 0.2 for one fifth, or off.
type Ratio struct {
	value float64
	off   bool
}

// Value returns the proportion; 0 if it is off.
func (r Ratio) Value() float64 { return r.value }

// Off reports whether the value is off.
func (r Ratio) Off() bool { return r.off }

// parseRatio parses "0.2", "20%" or "off".
func parseRatio(s string) (Ratio, error) {
	if strings.EqualFold(s, "off") {
		return Ratio{off: true}, nil
	}
	number, percent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !(v >= 0) || math.IsInf(v, 0) {
		return Ratio{}, errForm
	}
	if percent {
		v /= 100
	}
	return Ratio{value: v}, nil
}

// String is the inverse of parseRatio.
func (r Ratio) String() string {
	if r.off {
		return "off"
	}
	return strconv.FormatFloat(r.value, 'g', -1, 64)
}

// AutoDuration is a duration, one followed by the word hard, or auto.
type AutoDuration struct {
	d    time.Duration
	auto bool
	hard bool
}

// Hard reports whether the duration is a limit without exception.
func (a AutoDuration) Hard() bool { return a.hard }

// Auto reports whether the value is auto.
func (a AutoDuration) Auto() bool { return a.auto }

// Value returns the duration; 0 if it is auto.
func (a AutoDuration) Value() time.Duration { return a.d }

// parseAutoDuration parses a duration, such as "2s" or "2s hard", or "auto".
func parseAutoDuration(s string) (AutoDuration, error) {
	if strings.EqualFold(s, autoWord) {
		return AutoDuration{auto: true}, nil
	}
	number, hard := strings.CutSuffix(s, " hard")
	d, err := time.ParseDuration(strings.TrimSpace(number))
	if err != nil {
		return AutoDuration{}, errForm
	}
	return AutoDuration{d: d, hard: hard && d > 0}, nil
}

// String is the inverse of parseAutoDuration.
func (a AutoDuration) String() string {
	switch {
	case a.auto:
		return autoWord
	case a.hard:
		return DurationText(a.d) + " hard"
	}
	return DurationText(a.d)
}

// maxDuration limits every duration without a max tag: long enough for any purpose, and far
// from overflow in sums of durations.
const maxDuration = 720 * time.Hour

// DurationText formats d as time.Duration.String does, but 1m0s as 1m and 1h0m0s as 1h.
func DurationText(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
