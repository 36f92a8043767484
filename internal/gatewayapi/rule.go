package gatewayapi

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ruleSettings collects the settings of one rule, without its matches.
type ruleSettings struct {
	*converter
	route *httpRoute
	rule  *rule

	list     []setting
	upstream string // of the default route, if the rule matches everything
	address  setting
	rewrite  *urlRewrite
}

func (s *ruleSettings) set(key, value string, line int) {
	s.list = append(s.list, setting{key, value, line})
}

func (s *ruleSettings) has(key string) bool {
	return slices.ContainsFunc(s.list, func(have setting) bool { return have.key == key })
}

// filters adds the equivalents of filters and reports whether all have one.
func (s *ruleSettings) filters(list []filter) bool {
	whole := true
	for i := range list {
		f := &list[i]
		switch f.Type {
		case "RequestHeaderModifier":
			whole = s.headers("REQUEST_HEADERS", f.in("requestHeaderModifier"), f.RequestHeaders) && whole
		case "ResponseHeaderModifier":
			whole = s.headers("RESPONSE_HEADERS", f.in("responseHeaderModifier"), f.ResponseHeaders) && whole
		case "URLRewrite":
			if f.Rewrite == nil || s.rewrite != nil {
				s.wrong(f.place, "expected one urlRewrite")
			}
			s.rewrite = f.Rewrite
		default:
			s.lose(f.place, theRule, "retryproxy has no filter %s", f.Type)
			whole = false
			continue // its fields are lost with it
		}
		whole = !s.loseUnknown(f, theRule) && whole
	}
	return whole
}

// nextHeader matches the beginning of the next header in a setting.
var nextHeader = regexp.MustCompile("," + `\s*[!#$%&'*+.^_` + "`" + `|~0-9A-Za-z-]+\s*:`)

// headers adds the changes to headers. prefix is the prefix of the settings' names.
func (s *ruleSettings) headers(prefix string, at place, m *headerModifier) bool {
	if m == nil {
		s.wrong(at, "must be set")
		return true
	}
	whole := true
	for i := range m.Add {
		s.lose(m.Add[i].place, theRule, "retryproxy sets headers and adds none beside those that are there")
		whole = false
	}
	var set []string
	for _, h := range m.Set {
		if value := h.Value; nextHeader.MatchString(value) || strings.TrimSpace(value) != value {
			s.lose(h.place, theRule, "a header that is set cannot have a comma before a name and a colon in its value, or a space at its end")
			whole = false
		}
		set = append(set, h.Name+": "+h.Value)
	}
	if s.has(prefix+"_SET") || s.has(prefix+"_REMOVE") {
		s.lose(at, theRule, "another filter of the rule changes these headers too")
		return false
	}
	if len(set) > 0 {
		s.set(prefix+"_SET", strings.Join(set, ", "), m.line)
	}
	if len(m.Remove) > 0 {
		s.set(prefix+"_REMOVE", strings.Join(m.Remove, ","), m.line)
	}
	return whole
}

// finishRewrite adds the upstream, with the path to prepend, and the Host to send.
func (s *ruleSettings) finishRewrite() bool {
	base, whole, host := "", true, "preserve"
	if w := s.rewrite; w != nil {
		switch w.Hostname {
		case "":
		case "auto", "preserve", "upstream":
			s.lose(w.in("hostname"), theRule, "%s is a word of UPSTREAM_HOST", w.Hostname)
			whole = false
		default:
			host = w.Hostname
		}
		if w.Path != nil {
			var ok bool
			base, ok = s.rewritePrefix(w.Path)
			whole = whole && ok
		}
	}
	s.set("UPSTREAM_HOST", host, s.rule.line)
	if s.address.value == "" {
		return false
	}
	s.upstream = s.address.value
	if base != "" && strings.Contains(s.upstream, ",") {
		s.lose(s.rewrite.in("path"), theRule, "an upstream of several addresses has one path for none")
		whole = false
	}
	s.set("UPSTREAM", s.upstream+base, s.address.line)
	return whole
}

// rewritePrefix adds the replacement for the prefix of the rule's only match.
func (s *ruleSettings) rewritePrefix(w *pathRewrite) (base string, ok bool) {
	if w.Type != "ReplacePrefixMatch" {
		s.lose(w.place, theRule, "a route replaces the prefix of a path, not by %s", w.Type)
		return "", false
	}
	if len(s.rule.Matches) > 1 || len(s.rule.Matches) == 1 && s.rule.Matches[0].Path != nil && !slices.Contains([]string{"", "PathPrefix"}, s.rule.Matches[0].Path.Type) || w.ReplacePrefixMatch == nil {
		s.wrong(w.place, "replacePrefixMatch needs a value, and exactly one match with a PathPrefix")
		return "", true
	}
	prefix := ""
	if m := s.rule.Matches; len(m) == 1 && m[0].Path != nil {
		prefix = strings.TrimSuffix(m[0].Path.Value, "/")
	}
	if prefix != "" {
		s.set("STRIP_PREFIX", prefix, w.line)
	}
	base = strings.TrimSuffix(*w.ReplacePrefixMatch, "/")
	if base != "" && !strings.HasPrefix(base, "/") || strings.ContainsAny(base, ",?#") {
		s.lose(w.in("replacePrefixMatch"), theRule, "%q cannot stand before a path", *w.ReplacePrefixMatch)
		return "", false
	}
	return base, true
}

func (s *ruleSettings) timeouts() {
	t := &s.rule.Timeouts
	s.loseUnknown(t, theField)
	request, attempt := t.Request, t.BackendRequest
	if request != nil {
		s.set("REQUEST_TIMEOUT", durationText(*request), t.line)
	}
	switch {
	case request == nil && attempt == nil:
	case attempt == nil || *attempt == 0 || request != nil && *attempt == *request:
		s.set("ATTEMPT_TIMEOUT", "0s", t.line) // the request's timeout also ends the attempt
	case request != nil && *request > 0 && *attempt > *request:
		s.wrong(t.in("backendRequest"), "expected at most the request timeout %s, found %s", durationText(*request), durationText(*attempt))
	default:
		s.set("ATTEMPT_TIMEOUT", durationText(*attempt)+" hard", t.line)
	}
}

// connectionFailures are retried in addition to the codes of a rule, as GEP-1731 requires. After a
// request was sent, this only applies to requests that are safe to retry.
const connectionFailures = ",connect-failure,reset,attempt-timeout"

func (s *ruleSettings) retry() {
	r := s.rule.Retry
	if r == nil {
		return
	}
	s.loseUnknown(r, theField)
	var codes []string
	for i, code := range r.Codes {
		if code < 400 || code > 599 {
			s.wrong(r.in(fmt.Sprintf("codes[%d]", i)), "expected a status from 400 to 599, found %d", code)
		}
		codes = append(codes, strconv.Itoa(code))
	}
	if len(codes) > 0 {
		s.set("RETRY_ON", strings.Join(codes, ",")+connectionFailures, r.line)
	}
	if r.Attempts != nil {
		if *r.Attempts < 0 {
			s.wrong(r.in("attempts"), "expected 0 or more, found %d", *r.Attempts)
		}
		s.set("MAX_RETRIES", strconv.Itoa(*r.Attempts), r.line)
	}
	if r.Backoff != nil && *r.Backoff > 0 {
		s.backoff(durationText(*r.Backoff), r.line)
	}
}

// backoff makes base the minimum of every wait: the wait is fixed, with jitter on top. It also
// turns off everything that sends a second attempt beside the first, since that is a retry without
// a wait.
func (s *ruleSettings) backoff(base string, line int) {
	s.set("BACKOFF", "fixed", line)
	s.set("BACKOFF_BASE", base, line)
	s.set("BACKOFF_EXTRA", base, line)
	s.set("HEDGE_AFTER", "off", line)
	if !s.has("ATTEMPT_TIMEOUT") {
		s.set("ATTEMPT_TIMEOUT", "0s", line)
	}
}

func durationText(d duration) string { return time.Duration(d).String() }
