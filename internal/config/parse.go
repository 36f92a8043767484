package config

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v10"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/hedge"
	"github.com/retryproxy/retryproxy/policy/status"
)

// parsers has the parser of every type of setting. It replaces the library's own, whose error
// messages contain Go types; ours describe what to write. The opposite is text.
var parsers = byType(
	of(func(s string) (bool, error) { return strconv.ParseBool(strings.ToLower(s)) }),
	of(func(s string) (int, error) { n, err := strconv.ParseInt(s, 10, 32); return int(n), err }),
	of(func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }),
	of(time.ParseDuration), of(parseAutoDuration), of(parseSize), of(parseRatio),
	of(ParseAddress), of(parsePrefixes), of(parseUpstream), of(parseHostRule), of(parseBalance), of(parseHealthPath),
	of(parseRouteNames), of(parseMethods), of(parseHeaderFields), of(parseHeaderList),
	of(policy.ParseRetryOn), of(parseRetryMethods), of(policy.ParseLayeredRetries), of(status.ParseRejected), of(parseErrorCodes), of(hedge.Parse), of(parseFallback),
	of(parseConcurrencyLimit), of(parseBreakerOn), of(parseBreakerAfter), of(parseBackoff), of(parseBreakerBackoff), of(parseRateLimit), of(parseRateLimitKey), of(parseTokenLimit), of(parsePauseKey),
)

// typeParser is the parser of the settings of one type.
type typeParser struct {
	of    reflect.Type
	parse env.ParserFunc
}

func of[T any](parse func(string) (T, error)) typeParser {
	return typeParser{reflect.TypeFor[T](), func(s string) (any, error) { return parse(s) }}
}

func byType(list ...typeParser) map[reflect.Type]env.ParserFunc {
	all := map[reflect.Type]env.ParserFunc{}
	for _, p := range list {
		all[p.of] = p.parse
	}
	return all
}

// options keeps the library from reading the process's own environment. It passes a copy of
// parsers because the library adds its own to it.
func options(vars variables) env.Options {
	environment := map[string]string(vars)
	if environment == nil {
		environment = map[string]string{}
	}
	return env.Options{Environment: environment, FuncMap: maps.Clone(parsers)}
}

func parse(vars *sorted, problems *Problems) *Settings {
	s := &Settings{}
	s.Default.Name, s.Default.own = DefaultRoute, ownNames(vars.global, Prefix)
	parseInto(&s.Global, globalSettings, vars.global, s.Variable, problems)
	fillProfile(vars.global, nil)
	parseInto(&s.Default.Shared, sharedSettings, vars.global, s.Default.Variable, problems)
	s.Routes = make([]Route, len(vars.list))
	for i, name := range vars.list {
		parseRoute(&s.Routes[i], name, &s.Default, vars, problems)
	}
	return s
}

// ownNames returns the names of variables with the prefix, by key.
func ownNames(vars variables, prefix string) map[string]string {
	own := make(map[string]string, len(vars))
	for key := range vars {
		own[key] = prefix + key
	}
	return own
}

// parseInto fills the struct that target points to. Invalid values are reported and
// replaced by their default.
func parseInto(target any, list []Setting, vars variables, variable func(string) string, problems *Problems) {
	var all env.AggregateError
	err := env.ParseWithOptions(target, options(vars))
	if err != nil && !errors.As(err, &all) {
		all.Errors = []error{err}
	}
	byField := map[string]error{}
	for _, err := range all.Errors {
		var failed env.ParseError
		if !errors.As(err, &failed) {
			panic("settings: " + err.Error()) // an error in the struct's tags, all of which a test parses
		}
		byField[failed.Name] = failed.Err
	}
	v := reflect.ValueOf(target).Elem()
	for i := range list {
		s := &list[i]
		message, raw := "", vars[s.Key]
		if err, failed := byField[s.field]; failed {
			message = s.wrong(raw, err)
		} else {
			if s.isOutside(v.FieldByIndex(s.index), raw) || isQuoted(raw) {
				message = s.advise(raw, "")
			}
		}
		if message != "" {
			problems.errorf(variable(s.Key), s.quoted(raw), "%s", message)
			reset(target, s)
		}
	}
}

// quoted returns an invalid value for a message. Headers are masked, since they may contain a
// secret anywhere.
func (s *Setting) quoted(value string) string {
	if s.Unit == "headers" {
		return ""
	}
	return value
}

// errForm is the error of a parser that has nothing to add to what is expected.
var errForm = errors.New("not in the expected form")

// wrong returns the message for a parser's error; those of strconv and time are not shown.
func (s *Setting) wrong(value string, err error) string {
	var number *strconv.NumError
	why := oneLine(err)
	switch {
	case s.Unit == "duration" || s.Unit == "word" || errors.Is(err, errForm) || errors.As(err, &number) || isQuoted(value):
		why = ""
	case strings.HasSuffix(why, "?") && s.Unit == "fallback": // advise suggests more
		why = ""
	case strings.Contains(why, "did you mean") && s.Unit == "upstream": // the suggestion is all that is needed
		return why
	case strings.Contains(why, "did you mean"):
		return ended(why, "expected "+s.Expected())
	}
	return s.advise(value, why)
}

// advise returns the message about a value that is not valid: why, if that is known, then what may have
// been meant, then what is expected, which is often long.
func (s *Setting) advise(value, why string) string {
	fixed, cause := s.meant(value)
	var parts []string
	for _, part := range []string{why, cause} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if near, other := s.withUnits(value); other != "" && near == fixed {
		fixed += " or " + other
	}
	if fixed != "" {
		parts = append(parts, "did you mean "+fixed+"?")
	}
	return ended(strings.Join(parts, "; "), "expected "+s.Expected())
}

// ended appends a clause to a message, which may be empty or end with a question.
func ended(message, clause string) string {
	switch {
	case message == "":
		return clause
	case strings.HasSuffix(message, "?"):
		return message + " " + strings.ToUpper(clause[:1]) + clause[1:]
	}
	return message + "; " + clause
}

// isOutside reports whether the value is not an allowed word, or is out of range.
func (s *Setting) isOutside(v reflect.Value, raw string) bool {
	return raw != "" && (len(s.OneOf) > 0 && !slices.Contains(s.OneOf, raw) ||
		s.Unit == "address" && raw == "off" ||
		!s.inside(v))
}

// inside reports whether a number is within the tags min and max; a NaN never is.
func (s *Setting) inside(v reflect.Value) bool {
	value, isNumber := number(v)
	if !isNumber {
		return true
	}
	return value >= s.low && value <= s.high
}

// number returns a numeric field as a float, exact up to 2^53, which no limit exceeds.
func number(v reflect.Value) (float64, bool) {
	switch x := v.Interface().(type) {
	case time.Duration:
		return float64(x), true
	case Size:
		return float64(x), true
	case int:
		return float64(x), true
	case float64:
		return x, true
	case Ratio:
		return x.Value(), true
	case AutoDuration:
		return float64(x.Value()), true
	}
	return 0, false
}

// limits parses min and max as values of the field's type. Numbers without a min start at
// 0.
func (s *Setting) limits(t reflect.Type) (low, high float64) {
	high = 1 << 53
	if s.Min != "" {
		low = mustNumber(s.Min, t)
	}
	if s.Max != "" {
		high = mustNumber(s.Max, t)
	}
	return low, high
}

func mustNumber(text string, t reflect.Type) float64 {
	value, err := parsers[t](text)
	if err != nil {
		panic("settings: limit " + text + ": " + err.Error()) // an error in a tag, all of which a test parses
	}
	n, _ := number(reflect.ValueOf(value))
	return n
}

// reset restores the default of an invalid value.
func reset(target any, s *Setting) {
	v := reflect.ValueOf(target).Elem()
	clean := reflect.New(v.Type())
	if err := env.ParseWithOptions(clean.Interface(), options(nil)); err != nil {
		panic("settings: " + err.Error())
	}
	v.FieldByIndex(s.index).Set(clean.Elem().FieldByIndex(s.index))
}
