package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/retryproxy/retryproxy/policy/apierror"
)

// openSet is a setting whose words are not a closed set: any method, header or host is valid. A word that
// is near a known one, or that another program has in its place, is probably a mistake.
type openSet struct {
	names  func(text string) []string // the words in a value
	known  []string                   // the usual ones
	strict bool                       // every other one gets a warning, and one of another program is an error
	effect string                     // what is wrong with another one, behind it
}

// openSets has the open sets by the unit of their settings. The words of the other units are closed, or
// cannot be known, as TestEverySetOfWordsHasSuggestions records.
var openSets = map[string]openSet{
	"methodset":    {methodsIn, methodNames, true, "is a method that no client sends"},
	"methods":      {methodsIn, methodNames, true, "is a method that no client sends"},
	"models":       {stars, nil, false, "is not the name of a model"},
	"host":         {wholeHost, vocabulary["host"], false, "is sent as the Host header as it is"},
	"pathpattern":  {parametersIn, nil, false, "matches only itself"},
	"errorcodes":   {errorCodesIn, usualErrorCodes, false, "is not a usual error code"},
	"headers":      {fieldsIn, headerNames, false, unusualHeader},
	"headernames":  {splitList, headerNames, false, unusualHeader},
	"header":       {behind(""), headerNames, false, unusualHeader},
	"balance":      {behind(hashOf), headerNames, false, unusualHeader},
	"ratelimitkey": {behind(headerKey), headerNames, false, unusualHeader},
	"pausekey":     {behind(headerKey), headerNames, false, unusualHeader},
	"retryon":      {behind("retriable-header:"), headerNames, false, unusualHeader},
}

const unusualHeader = "is not a usual header"

// unfamiliar reports words of open sets that are probably mistakes.
func (c *checker) unfamiliar() {
	c.unfamiliarIn(sharedSettings, reflect.ValueOf(&c.r.Shared).Elem())
	if c.r != &c.s.Default {
		c.unfamiliarIn(matcherSettings, reflect.ValueOf(&c.r.Matcher).Elem())
	}
}

func (c *checker) unfamiliarIn(list []Setting, v reflect.Value) {
	for i := range list {
		s := &list[i]
		set, open := openSets[s.Unit]
		if !open || !c.own(s.Key) || c.problems.hasError(c.r.own[s.Key]) {
			continue
		}
		whole := text(v.FieldByIndex(s.index))
		for _, word := range set.names(whole) {
			c.word(s, &set, word, whole)
		}
	}
}

// word reports a word of an open set that is probably a mistake. whole is the value that has it.
func (c *checker) word(s *Setting, set *openSet, word, whole string) {
	same := func(known string) bool { return strings.EqualFold(known, word) }
	if slices.ContainsFunc(set.known, same) || slices.ContainsFunc(s.words(), same) {
		return
	}
	known := s.translation(word)
	meant := ""
	if list := s.translations(word); len(list) > 0 {
		meant = list[0]
	}
	switch {
	case s.Unit == "pathpattern":
		meant = "*"
	case meant == "":
		meant = set.near(word)
	}
	if meant == "" && known.note == "" && !set.strict {
		return
	}
	message := fmt.Sprintf("%q %s", word, set.effect)
	if known.note != "" {
		message += "; " + known.note
	}
	if meant != "" {
		message += "; did you mean " + meant + "?"
	}
	variable, value := c.r.own[s.Key], s.quoted(whole)
	if set.strict && known != (translation{}) {
		c.problems.errorf(variable, value, "%s", message)
	} else {
		c.problems.warnf(variable, value, "%s", message)
	}
}

// near returns the usual word that is nearest to word, or "". A short word is near too many.
func (o *openSet) near(word string) string {
	if len(word) < 4 {
		return ""
	}
	byUpper := map[string]string{}
	for _, known := range o.known {
		byUpper[strings.ToUpper(known)] = known
	}
	return byUpper[Nearest(strings.ToUpper(word), maps.Keys(byUpper))]
}

// methodsIn returns the methods of a list, without the words that stand for several.
func methodsIn(text string) []string {
	return slices.DeleteFunc(splitList(text), func(m string) bool { return m == "none" })
}

// wholeHost returns a host that is one word: a name with a dot or port is a host.
func wholeHost(text string) []string {
	if strings.ContainsAny(text, ".:") {
		return nil
	}
	return []string{text}
}

// errorCodesIn returns the codes of a list, without texts and without codes that are removed.
func errorCodesIn(text string) []string {
	return slices.DeleteFunc(splitList(text), func(entry string) bool { return entry[0] == '!' || apierror.IsText(entry) })
}

// stars returns the entries of a list that stand for everything elsewhere.
func stars(text string) []string {
	return slices.DeleteFunc(splitList(text), func(word string) bool { return !isOneOf(fold(word), allWords) })
}

// parametersIn returns the segments of paths that stand for any name in other routers, such as :id.
func parametersIn(text string) (found []string) {
	for segment := range strings.SplitSeq(strings.ReplaceAll(text, ",", "/"), "/") {
		if segment != "*" && pathParameter().MatchString(segment) {
			found = append(found, segment)
		}
	}
	return found
}

// fieldsIn returns the names of headers with values.
func fieldsIn(text string) (names []string) {
	for _, part := range splitHeaders(text) {
		name, _, _ := strings.Cut(part, ":")
		names = append(names, strings.TrimSpace(name))
	}
	return names
}

// behind returns a function that returns the names of headers behind a word, without their values.
func behind(word string) func(text string) []string {
	return func(text string) (names []string) {
		for _, part := range splitList(text) {
			if after, is := strings.CutPrefix(part, word); is {
				name, _, _ := strings.Cut(after, "=")
				names = append(names, name)
			}
		}
		return names
	}
}

// usualErrorCodes are the codes that are known from APIs.
var usualErrorCodes = func() (codes []string) {
	for _, e := range apierror.Entries() {
		if !apierror.IsText(e.Sign) {
			codes = append(codes, e.Sign)
		}
	}
	return codes
}()

// headerNames are the usual headers of requests and responses, in particular those that settings name.
var headerNames = strings.Fields("Accept Accept-Charset Accept-Encoding Accept-Language Age Allow Api-Key Authorization Cache-Control Connection" +
	" Content-Disposition Content-Encoding Content-Language Content-Length Content-Location Content-Range Content-Security-Policy Content-Type Cookie" +
	" Date ETag Expect Expires Forwarded From Host Idempotency-Key If-Match If-Modified-Since If-None-Match If-Range If-Unmodified-Since" +
	" Keep-Alive Last-Modified Link Location Origin Pragma Prefer Proxy-Authorization Range Referer Retry-After Server Set-Cookie" +
	" Strict-Transport-Security TE Traceparent Tracestate Trailer Transfer-Encoding Upgrade User-Agent Vary Via WWW-Authenticate Warning" +
	" X-Api-Key X-Correlation-ID X-Forwarded-For X-Forwarded-Host X-Forwarded-Proto X-Frame-Options X-Real-IP X-Request-ID X-Should-Retry" +
	" X-Tenant X-Tenant-ID X-User-ID X-Envoy-Retry-On X-Retryproxy-Attempts X-Retryproxy-Reason")
