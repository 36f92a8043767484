package config

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/internal/strategy"
	"github.com/retryproxy/retryproxy/policy/backoff"
)

// forms has for units the values in the setting's form that may have been meant by a value in another
// form, the most likely first. They need not be valid.
var forms = map[string]func(value string) []string{
	"duration":     durations,
	"autoduration": durations,
	"hedge":        hedges,
	"size":         sizes,
	"count":        counts,
	"limit":        counts,
	"breakerafter": counts,
	"number":       func(v string) []string { return []string{strings.Replace(v, ",", ".", 1)} },
	"ratio":        ratios,
	"ratelimit":    rates,
	"tokenlimit":   rates,
	"address":      func(v string) []string { return addresses(v, ":8080") },
	"addressoff":   func(v string) []string { return addresses(v, ":9797") },
	"upstream":     upstreams,
	"fallback":     func(v string) []string { return append(fixedResponses(v), upstreams(v)...) },
	"strategy":     strategies, "breakerbackoff": strategies,
	"engine":       engines,
	"host":         hosts,
	"hostpattern":  hosts,
	"header":       headerMatches,
	"pathpattern":  paths,
	"pathprefix":   func(v string) []string { return []string{"/" + strings.Trim(strings.TrimSuffix(v, "*"), "/")} },
	"probepath":    func(v string) []string { return []string{"/" + strings.TrimLeft(pathOf(v), "/")} },
	"prefixes":     prefixes,
	"retryon":      statuses,
	"breakeron":    statuses,
	"statusset":    func(v string) []string { return append(statuses(v), anyDigit().ReplaceAllString(v, "${1}00-${1}99")) },
	"routes":       func(v string) []string { return []string{strings.Trim(notInName().ReplaceAllString(v, "-"), "-")} },
	"pausekey":     sharingKeys,
	"ratelimitkey": sharingKeys,
	"balance":      func(v string) []string { return []string{hashOf + headerIn(v)} },
}

var (
	numberAndUnit = lazily(`^([0-9]+(?:[.,][0-9]+)?)\s*([a-zA-Zµ]*)$`)
	notInName     = lazily(`[^A-Za-z0-9]+`)
	anyDigit      = lazily(`^([45])(?:xx|XX|\*\*|\.\.)$`)
	statusPrefix  = lazily(`(?i)^(?:http|status|code)[_ -]?([0-9]{3})$`)
	statusRange   = lazily(`^([0-9]{3})\s*(?:\.\.|:|to|~)\s*([0-9]{3})$`)
	ratePeriod    = lazily(`(?i)^([0-9]+)\s*(?:requests?|reqs?|r|q|tokens?|t)?\s*(?:/|per|p)?\s*(?:1\s*|60\s*)?(s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?)$`)
	clockDuration = lazily(`^([0-9]+[hm])([0-9]{1,2})$`)
	doubledPort   = lazily(`^([0-9]+):[0-9]+$`)
)

// durationUnits are the units that people write, with the one of Go.
var durationUnits = map[string]string{
	"": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s", "s": "s",
	"min": "m", "mins": "m", "minute": "m", "minutes": "m", "m": "m",
	"hr": "h", "hrs": "h", "hour": "h", "hours": "h", "h": "h",
	"msec": "ms", "msecs": "ms", "milli": "ms", "millis": "ms", "millisecond": "ms", "milliseconds": "ms", "ms": "ms",
	"usec": "us", "microseconds": "us", "us": "us",
}

// withUnit returns a duration without a unit as milliseconds or as seconds, whichever is nearer to the
// default or to the example of the setting; "" for another value.
func (s *Setting) withUnit(value string) string {
	near, _ := s.withUnits(value)
	return near
}

// eitherUnit is how far from the default or the example, as a factor, a duration may be that is suggested
// beside a nearer one: of 500 for a default of 30s, people of some programs mean seconds, of others milliseconds.
const eitherUnit = 100

// withUnits is withUnit. It also returns the duration in the other unit, if that may have been meant as well.
func (s *Setting) withUnits(value string) (near, other string) {
	n, err := strconv.ParseFloat(value, 64)
	if s.Unit != "duration" && s.Unit != "autoduration" || err != nil || n <= 0 || strings.Trim(value, "0123456789.") != "" {
		return "", "" // 1e6 is neither seconds nor milliseconds
	}
	usual := time.Second
	for _, text := range []string{s.Example, s.Default} {
		if d, err := time.ParseDuration(text); err == nil && d > 0 {
			usual = d
		}
	}
	farFrom := func(unit time.Duration) float64 { return math.Abs(math.Log(n * float64(unit) / float64(usual))) }
	near, other = value+"s", DurationText(time.Duration(n*float64(time.Millisecond)))
	far := farFrom(time.Millisecond)
	if far < farFrom(time.Second) {
		near, other, far = other, near, farFrom(time.Second)
	}
	if far >= math.Log(eitherUnit) {
		other = ""
	}
	return near, other
}

func durations(v string) []string {
	v = strings.ToLower(v)
	joined := strings.ReplaceAll(strings.TrimPrefix(v, "pt"), " ", "")     // PT30S of ISO 8601, 1h 30m
	if match := clockDuration().FindStringSubmatch(joined); match != nil { // 1m30
		return []string{joined + map[byte]string{'h': "m", 'm': "s"}[match[1][len(match[1])-1]]}
	}
	match := numberAndUnit().FindStringSubmatch(v)
	if match == nil {
		return []string{joined}
	}
	number := strings.Replace(match[1], ",", ".", 1)
	switch unit := match[2]; unit {
	case "d", "day", "days":
		days, _ := strconv.ParseFloat(number, 64) // the pattern matches only numbers
		return []string{DurationText(time.Duration(days * 24 * float64(time.Hour)))}
	default:
		return []string{number + durationUnits[unit]}
	}
}

// hedges takes a number for a percentile if it can be one, otherwise for a duration.
func hedges(v string) []string {
	percentile := "p" + strings.Trim(v, "pP%th ")
	return append([]string{percentile, (&Setting{Unit: "duration", Default: "100ms"}).withUnit(v)}, durations(v)...)
}

func sizes(v string) []string {
	v = strings.ReplaceAll(v, "_", "")
	if n, err := strconv.ParseFloat(v, 64); err == nil && n < math.MaxInt64 { // 1e6
		return []string{Size(n).String()}
	}
	match := numberAndUnit().FindStringSubmatch(v)
	if match == nil {
		return nil
	}
	number, _ := strconv.ParseFloat(strings.Replace(match[1], ",", ".", 1), 64)
	unit := strings.ToLower(strings.TrimRight(match[2], "iIbB"))
	factor := map[string]float64{"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}[unit]
	return []string{Size(number * factor).String()}
}

func counts(v string) []string {
	v = strings.TrimSuffix(strings.NewReplacer("_", "", " ", "", ",", "").Replace(v), ".0")
	thousands, is := strings.CutSuffix(strings.ToLower(v), "k")
	if is {
		return []string{thousands + "000"}
	}
	return []string{v, strings.TrimRight(v, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")}
}

func ratios(v string) []string {
	v = strings.Replace(v, ",", ".", 1)
	if over, under, is := strings.Cut(v, "/"); is {
		a, errA := strconv.ParseFloat(strings.TrimSpace(over), 64)
		b, errB := strconv.ParseFloat(strings.TrimSpace(under), 64)
		if errA == nil && errB == nil && b > 0 {
			return []string{strconv.FormatFloat(a/b, 'g', 3, 64)}
		}
	}
	return []string{v, v + "%", strings.TrimRight(v, "percnt ") + "%"}
}

// statusAndBody matches a status without a body, or with another separator than a colon.
var statusAndBody = lazily(`^([2-5][0-9]{2})(?:[\s,;=]+(.*))?$`)

func fixedResponses(v string) []string {
	match := statusAndBody().FindStringSubmatch(v)
	if match == nil {
		return nil
	}
	status, _ := strconv.Atoi(match[1])                    // the pattern matches only numbers
	if rest := match[2]; strings.ContainsAny(rest, ":/") { // not a body, but another fallback, which comes first
		return []string{rest + "," + match[1] + ":" + http.StatusText(status)}
	}
	return []string{match[1] + ":" + cmp.Or(match[2], http.StatusText(status))}
}

// strategies separates options by colons, and repairs the names of options and durations without a unit.
func strategies(v string) []string {
	if _, err := time.ParseDuration(v); err == nil { // a wait that is always the same
		return []string{"fixed:base=" + v}
	}
	parts := strings.FieldsFunc(v, func(r rune) bool { return strings.ContainsRune(":,; ", r) })
	for i, part := range parts {
		key, value, is := strings.Cut(part, "=")
		if !is || i == 0 {
			continue
		}
		if near := Nearest(key, slices.Values(strategy.KeysOf(parts[0]))); near != "" {
			key = near
		}
		if err := strategy.Set(new(backoff.Options), key, value); err != nil {
			value = cmp.Or((&Setting{Unit: "duration", Default: "100ms"}).withUnit(value), durations(value)[0])
		}
		parts[i] = key + "=" + value
	}
	return []string{strings.Join(parts, ":")}
}

// fractionalRate matches a rate with a fraction or a unit of thousands or millions.
var fractionalRate = lazily(`^([0-9]+(?:[.,][0-9]+)?)\s*([kKM]?)/([smh])$`)

// wholeRate returns a rate with a whole number, such as 30/m for 0.5/s; "" for another value.
func wholeRate(v string) string {
	match := fractionalRate().FindStringSubmatch(v)
	if match == nil {
		return ""
	}
	number := strings.Replace(match[1], ",", ".", 1)
	if whole, group, is := strings.Cut(match[1], ","); is && len(group) == 3 && match[2] == "" { // 200,000/m
		number = whole + group
	}
	n, _ := strconv.ParseFloat(number, 64) // the pattern matches only numbers
	n *= map[string]float64{"": 1, "k": 1e3, "K": 1e3, "M": 1e6}[match[2]]
	periods := "smh"
	for i := strings.Index(periods, match[3]); i < len(periods); i++ {
		if n > 0 && n == math.Trunc(n) {
			return fmt.Sprintf("%.0f/%c", n, periods[i])
		}
		n *= 60
	}
	return ""
}

func rates(v string) []string {
	if whole := wholeRate(v); whole != "" {
		return []string{whole}
	}
	if match := ratePeriod().FindStringSubmatch(v); match != nil {
		return []string{match[1] + "/" + strings.ToLower(match[2][:1])}
	}
	return nil
}

// afterScheme returns what follows the scheme of a URL, or v.
func afterScheme(v string) string {
	if _, after, is := strings.Cut(v, "://"); is {
		return after
	}
	return strings.TrimPrefix(v, "//")
}

// pathOf returns the path of a URL, or v.
func pathOf(v string) string {
	if !strings.Contains(v, "://") {
		return v
	}
	_, path, _ := strings.Cut(afterScheme(v), "/")
	return "/" + path
}

func afterColon(v string) string {
	if _, after, is := strings.Cut(v, ":"); is {
		return after
	}
	return v
}

// addresses returns the forms of an address; port is that of an address without one.
func addresses(v, port string) []string {
	if strings.HasPrefix(v, "/") && !strings.HasPrefix(v, "//") {
		return []string{"unix:" + v}
	}
	host, _, _ := strings.Cut(afterScheme(v), "/")
	if published := doubledPort().FindStringSubmatch(host); published != nil {
		host = published[1]
	}
	if with := withBrackets(host); with != host {
		return []string{with, with + port}
	}
	return []string{":" + strings.TrimPrefix(strings.TrimPrefix(host, "*"), ":"), host, host + port}
}

// withBrackets puts brackets around an IPv6 address, with or without a port of at least two digits behind
// it. Another host is returned unchanged.
func withBrackets(host string) string {
	at := strings.LastIndexByte(host, ':')
	if at < 0 || strings.HasPrefix(host, "[") {
		return host
	}
	port := host[at+1:]
	if a, err := netip.ParseAddr(host[:at]); err == nil && a.Is6() && len(port) > 1 && strings.Trim(port, "0123456789") == "" {
		return "[" + host[:at] + "]:" + port
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() {
		return "[" + host + "]"
	}
	return host
}

func upstreams(v string) []string {
	if strings.HasPrefix(v, routeEntry) {
		return nil
	}
	if strings.HasPrefix(v, "/") && !strings.HasPrefix(v, "//") {
		return []string{"unix:" + v}
	}
	scheme, rest, found := strings.Cut(v, "://")
	if !found {
		rest = strings.TrimPrefix(v, "//")
		for _, half := range []string{"https:/", "https//", "https:", "http:/", "http//", "http:", "unix:"} { // a colon or slash is missing
			if after, is := strings.CutPrefix(v, half); is {
				scheme, rest = strings.TrimRight(half, ":/"), after
				break
			}
		}
	}
	if scheme == "unix" {
		return []string{"unix:/" + strings.TrimLeft(rest, "/")}
	}
	if _, err := strconv.ParseUint(rest, 10, 16); err == nil {
		rest = ":" + rest
	}
	rest, _, _ = strings.Cut(rest, "?")
	rest, _, _ = strings.Cut(rest, "#")
	meant := map[string]string{"grpc": "h2c", "grpcs": "h2", "http2": "h2c", "https2": "h2", "wss": "https", "ssl": "https", "tls": "https"}[strings.ToLower(scheme)]
	if meant == "" {
		meant = "http"
		if near := Nearest(strings.ToLower(scheme), slices.Values([]string{"http", "https"})); near != "" {
			meant = near
		}
	}
	host, path, _ := strings.Cut(rest, "/")
	host = withBrackets(host)
	if strings.HasPrefix(host, ":") {
		host = "localhost" + host
	}
	rest = host + strings.TrimSuffix("/"+strings.TrimSuffix(path, "*"), "/")
	return []string{scheme + "://" + rest, meant + "://" + rest, meant + "://" + strings.TrimRight(rest, ":/")}
}

func engines(v string) []string {
	rest := strings.TrimPrefix(v, "redis:")
	scheme := "redis"
	if secure, _, is := strings.Cut(v, "://"); is {
		rest = afterScheme(v)
		if strings.HasSuffix(secure, "ss") || strings.HasSuffix(secure, "ys") || strings.HasSuffix(secure, "+tls") {
			scheme = "rediss"
		}
	}
	switch {
	case strings.HasPrefix(rest, "/"):
		return []string{"unix:" + rest}
	case strings.Trim(rest, "0123456789") == "": // redis is the host
		rest = v
	}
	return []string{scheme + "://" + rest}
}

func hosts(v string) []string {
	host, _, _ := strings.Cut(afterScheme(v), "/")
	if after, is := strings.CutPrefix(host, "."); is { // nginx: the domain and all names below it
		return []string{after + ",*." + after, "*." + after}
	}
	return []string{host}
}

func headerMatches(v string) []string {
	at := strings.IndexAny(v, ":=")
	if at < 0 {
		return nil
	}
	return []string{strings.TrimSpace(v[:at]) + "=" + strings.Trim(v[at:], ":=~ ")}
}

// pathParameter matches a segment that stands for any name in other routers: {id}, :id, <id>, **, (.*).
var pathParameter = lazily(`^(?:\{[^}]*\}|:\w+|<[^>]*>|\(\?:?.*\)|\[[^\]]*\][*+]?|\.[*+]|\(\.[*+]\)|\*\*)$`)

func paths(v string) []string {
	v = strings.TrimSpace(strings.TrimLeft(pathOf(v), "=~* "))
	v = strings.TrimSuffix(strings.TrimPrefix(v, "^"), "$")
	v, _, _ = strings.Cut(v, "?")
	v = strings.TrimSuffix(v, "(/.*)")
	segments := strings.Split(strings.TrimLeft(v, "/"), "/")
	for i, segment := range segments {
		if pathParameter().MatchString(segment) {
			segments[i] = "*"
		}
	}
	whole := "/" + strings.Join(segments, "/")
	trimmed := strings.TrimRight(strings.TrimRight(whole, "*"), ".")
	return []string{whole, strings.TrimSuffix(trimmed, "/") + "/*"}
}

func prefixes(v string) []string {
	address, mask, _ := strings.Cut(v, "/")
	if ip := net.ParseIP(mask).To4(); ip != nil {
		ones, _ := net.IPMask(ip).Size()
		return []string{fmt.Sprintf("%s/%d", address, ones)}
	}
	if parsed, err := netip.ParsePrefix(v); err == nil {
		return []string{parsed.Masked().String()}
	}
	if host, _, err := net.SplitHostPort(v); err == nil {
		return []string{host}
	}
	octets := strings.Split(strings.TrimRight(strings.TrimRight(v, "*"), "."), ".") // 10.*
	for bits := 8 * len(octets); len(octets) < 4; {
		octets = append(octets, "0")
		if len(octets) == 4 {
			return []string{fmt.Sprintf("%s/%d", strings.Join(octets, "."), bits)}
		}
	}
	return nil
}

func statuses(v string) []string {
	v = strings.TrimPrefix(v, "^")
	if match := statusPrefix().FindStringSubmatch(v); match != nil {
		return []string{match[1]}
	}
	if match := statusRange().FindStringSubmatch(v); match != nil {
		return []string{match[1] + "-" + match[2]}
	}
	if up, is := strings.CutSuffix(v, "+"); is {
		v = up + "-"
	}
	if first, last, is := strings.Cut(v, "-"); is && len(first) == 3 {
		switch {
		case last == "" && first[0] != '5': // 429-: few of those behind it can be retried
			return []string{first}
		case last == "": // 500-
			return []string{first + "-" + first[:1] + "99"}
		case last < first: // 504-500
			return []string{last + "-" + first}
		}
	}
	if after, is := strings.CutPrefix(v, "-"); is {
		return []string{"!" + after}
	}
	if header, is := strings.CutPrefix(v, "retriable-headers:"); is {
		return []string{"retriable-header:" + header}
	}
	return []string{"grpc-" + strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(strings.ToLower(v), "grpc")), "_", "-")}
}

func sharingKeys(v string) []string {
	if strings.HasPrefix(v, "json:") {
		return []string{modelKey}
	}
	return []string{headerKey + headerIn(v), strings.ToLower(v)}
}

// headerIn returns the header's name behind a colon, or in nginx's variable.
func headerIn(v string) string {
	return strings.Join(strings.Fields(strings.TrimPrefix(afterColon(v), "$http_")), "-")
}
