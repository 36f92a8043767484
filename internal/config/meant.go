package config

import (
	"encoding"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/retryproxy/retryproxy/proxy/route"
)

// meant returns a valid value that may have been meant by one that is not valid, and what is wrong with
// the latter. Both are "" if nothing valid is near, and why may be "" alone. It
// suggests nothing for a value that may contain a secret.
//
// It removes what does not belong to a value (cleanups), and then repairs it or each entry of a list
// (candidates). The setting's own parser decides whether a repaired value is valid.
func (s *Setting) meant(value string) (fixed, why string) {
	if s.Unit == "headers" || Mask(value) != value {
		return "", "" // it may contain a secret
	}
	clean, why := s.clean(value)
	if clean != value && s.allows(clean) {
		return clean, why
	}
	if note := s.note(clean); note != "" {
		return "", note // better than a word that is only near
	}
	if repaired := s.repairAll(clean); repaired != value && s.allows(repaired) {
		return repaired, why
	}
	return "", unexpanded(value)
}

// allows reports whether a value of the setting is valid on its own.
func (s *Setting) allows(value string) bool {
	if value == "" {
		return false
	}
	if s.Scope == ScopeMatcher && !s.matches(value) {
		return false
	}
	if parse, has := parsers[s.typ]; has {
		parsed, err := parse(value)
		return err == nil && !s.isOutside(reflect.ValueOf(parsed), value)
	}
	if parses, is := reflect.New(s.typ).Interface().(encoding.TextUnmarshaler); is {
		return parses.UnmarshalText([]byte(value)) == nil
	}
	return !s.isOutside(reflect.ValueOf(value), value) // a string
}

// matches reports whether package route accepts the value of a matcher.
func (s *Setting) matches(value string) bool {
	var m route.Match
	switch s.Key {
	case "HOST":
		m.Host = value
	case "PATH":
		m.Path = value
	case "HEADER":
		m.Header = value
	case "MODEL":
		m.Model = value
	default:
		return true
	}
	_, err := route.New([]route.Rule[int]{{Name: "x", Match: m}}, 0)
	return err == nil
}

// cleanups remove what does not belong to a value. The most common one is first.
var cleanups = []struct {
	apply func(s *Setting, value string) string
	why   string
}{
	{func(_ *Setting, v string) string { return nameBefore().ReplaceAllString(v, "") }, "the value begins with a variable's name"},
	{func(_ *Setting, v string) string { return withoutQuotes(v) }, "the quotes are part of the value, since docker --env-file keeps them"},
	{func(_ *Setting, v string) string { return commentAfter().ReplaceAllString(v, "") }, "the comment is part of the value"},
	{func(_ *Setting, v string) string { return lookalikes.Replace(v) }, "a character only looks like the right one"},
	{func(_ *Setting, v string) string { return withoutBrackets(v) }, "a list has no brackets"},
	{(*Setting).withPort, "a colon separates the host from the port"},
	{(*Setting).withCommas, "commas separate the entries"},
	{func(_ *Setting, v string) string { return strings.TrimRight(v, " ;,") }, ""},
	{func(_ *Setting, v string) string { return withDigits(v) }, "a letter stands among the digits"},
}

// clean applies the cleanups until the value is valid, and returns why the last one was needed.
func (s *Setting) clean(value string) (clean, why string) {
	for _, c := range cleanups {
		if s.allows(value) && !isQuoted(value) {
			break
		}
		if after := c.apply(s, value); after != value {
			value, why = after, c.why
		}
	}
	return value, why
}

var (
	nameBefore   = lazily(`^(?:export\s+)?` + Prefix + `[A-Z0-9_]+=\s*`)
	commentAfter = lazily(`\s+(?:#|//|--)\s.*$|\s+#.*$`)
	lookalikes   = strings.NewReplacer("\u00a0", " ", "\u200b", "", "\ufeff", "", "–", "-", "—", "-", "−", "-", "，", ",", "；", ",", "：", ":", "／", "/")
)

// quotes are pairs of opening and closing quotes.
var quotes = [][2]string{{`\"`, `\"`}, {`"`, `"`}, {`'`, `'`}, {"`", "`"}, {"“", "”"}, {"‘", "’"}, {"„", "“"}, {"«", "»"}}

// isQuoted reports whether a value stands in quotes. No setting has such a value: the shell and the reader
// of files remove quotes.
func isQuoted(value string) bool {
	for _, q := range quotes {
		if len(value) >= len(q[0])+len(q[1]) && strings.HasPrefix(value, q[0]) && strings.HasSuffix(value, q[1]) {
			return true
		}
	}
	return false
}

// withoutQuotes removes quotes around a value, and one on a single side.
func withoutQuotes(value string) string {
	for again := true; again; {
		again = false
		for _, q := range quotes {
			inner := strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(value, q[0]), q[1]))
			again = again || inner != value
			value = inner
		}
	}
	return value
}

// withoutBrackets turns a list of YAML or JSON, such as ["5xx", "429"], into one of ours.
func withoutBrackets(value string) string {
	inner, opened := strings.CutPrefix(value, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	if !opened || !closed {
		return value
	}
	items := splitList(inner)
	for i := range items {
		items[i] = withoutQuotes(items[i])
	}
	return strings.Join(items, ",")
}

// isList reports whether the setting is a list that is split at its commas.
func (s *Setting) isList() bool {
	return strings.Contains(units[s.Unit], "separated by commas") && s.Unit != "headers" && s.Unit != "fallback"
}

// portAfter matches a host and a port with another separator than a colon.
var portAfter = lazily(`^((?:[a-z0-9]+://)?[A-Za-z0-9.-]+)[;.,]([0-9]{2,5})$`)

// withPort puts a colon before the port of an address.
func (s *Setting) withPort(value string) string {
	_, err := netip.ParseAddr(value) // its last number is no port
	if s.Unit != "upstream" && s.Unit != "address" && s.Unit != "addressoff" || err == nil {
		return value
	}
	if with := portAfter().ReplaceAllString(value, "$1:$2"); s.allows(with) {
		return with
	}
	return value
}

// withCommas separates the entries of a list by commas in place of spaces, semicolons and bars.
func (s *Setting) withCommas(value string) string {
	if !s.isList() {
		return value
	}
	return strings.Join(strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(" \t\r\n,;|", r) }), ",")
}

// amongDigits matches a number, or the port of an address, with letters that look like digits.
var amongDigits = lazily(`(^|[:/=,-])([0-9]*[OolI][0-9OolI]*)(\b|$)`)

// withDigits replaces letters among digits that look like a digit, as in http://app:300O.
func withDigits(value string) string {
	return amongDigits().ReplaceAllStringFunc(value, func(found string) string {
		if !strings.ContainsAny(found, "0123456789") {
			return found
		}
		return strings.NewReplacer("O", "0", "o", "0", "l", "1", "I", "1").Replace(found)
	})
}

// repairAll repairs a value, or each entry of a list that is not valid on its own.
func (s *Setting) repairAll(value string) string {
	if !s.isList() {
		return s.repair(value)
	}
	var items []string
	for _, item := range splitList(value) {
		if !s.allows(item) {
			item = s.repair(item)
		}
		if !slices.Contains(items, item) { // empty-response and junk-response are both reset
			items = append(items, item)
		}
	}
	return strings.Join(items, ",")
}

// repair returns the first valid candidate for a value, or the value.
func (s *Setting) repair(value string) string {
	candidates := s.candidates(value)
	if i := slices.IndexFunc(candidates, s.allows); i >= 0 {
		return candidates[i]
	}
	return value
}

// candidates returns what may have been meant by a value, the most likely first: the word for it that
// another program has, the nearest word, and the value in the form that the setting has or in another case.
func (s *Setting) candidates(value string) []string {
	list := s.translations(value)
	if word := Nearest(strings.ToLower(value), slices.Values(s.words())); word != "" {
		list = append(list, word)
	}
	if with := s.withUnit(value); with != "" {
		list = append(list, with)
	}
	if form := forms[s.Unit]; form != nil {
		list = append(list, form(value)...)
	}
	return append(list, strings.ToLower(value), strings.ToUpper(value))
}

// lazily returns a function that compiles a pattern when it is first needed: only for a value that is not
// valid, which most processes do not have.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// placeholder matches what something should have replaced by a value.
var placeholder = lazily(`\$\{[^}]*\}|\$\([^)]*\)|\$[A-Z_]{2,}|\{\{.*\}\}|<[A-Za-z][\w -]*>`)

// unexpanded explains a placeholder in a value.
func unexpanded(value string) string {
	if found := placeholder().FindString(value); found != "" {
		return "nothing has replaced " + found + " by a value"
	}
	return ""
}
