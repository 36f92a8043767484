package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/hedge"
)

// Scope is where a setting may be set.
type Scope uint8

// The scopes, in the order of the documentation.
const (
	ScopeGlobal  Scope = iota // RETRYPROXY_<KEY> only
	ScopeShared               // RETRYPROXY_<KEY>, or RETRYPROXY_ROUTE_<NAME>_<KEY> for a route
	ScopeMatcher              // RETRYPROXY_ROUTE_<NAME>_<KEY> only
)

// Setting describes one setting, from its tags in settings.go.
type Setting struct {
	Key      string // the name after RETRYPROXY_
	Scope    Scope
	Group    string            // heading
	Default  string            // in the syntax of the setting; "" if there is none
	Shown    string            // the default for the documentation
	Profiles map[string]string // defaults that a profile changes, by the name of the profile; nil if none does
	Unit     string            // key of units
	OneOf    []string          // allowed words
	Min, Max string            // limits, "" for none
	Live     bool              // a reload changes it
	About    string            // one sentence
	Example  string            // a value to start with, for the usual settings; "" for the others

	positions map[string]string // defaults by position; nil if it depends on something else
	field     string            // Go name in its struct
	index     []int
	typ       reflect.Type
	low, high float64 // Min and Max; 0 and 2^53 if there is none
}

// Variable returns the name of the setting in the environment: for all routes or, for a
// matcher, for the route <NAME>.
func (s *Setting) Variable() string {
	if s.Scope == ScopeMatcher {
		return Prefix + "ROUTE_<NAME>_" + s.Key
	}
	return Prefix + s.Key
}

// Expected returns a description of the allowed values.
func (s *Setting) Expected() string {
	if len(s.OneOf) > 0 {
		return "one of " + strings.Join(s.OneOf, ", ")
	}
	text := units[s.Unit]
	switch names := strings.Join(backoff.Strategies(), ", "); s.Unit {
	case "strategy":
		text = "one of " + names + ", and its options, such as normal:jitter=0.2:factor=3"
	case "breakerbackoff":
		text = "auto, or one of " + strings.Replace(names, "none, ", "", 1) + ", and its options, such as slots:base=10ms:slots=10"
	}
	switch {
	case s.Min != "" && s.Max != "":
		text += fmt.Sprintf(", from %s to %s", s.Min, s.Max)
	case s.Min != "":
		text += ", at least " + s.Min
	case s.Max != "":
		text += ", at most " + s.Max
	}
	return text
}

// Description returns the sentence, the default and the allowed values.
func (s *Setting) Description() string {
	return fmt.Sprintf("%s Default: %s (%s).", s.About, s.Shown, s.Expected())
}

var (
	// profiles are the names of the profiles, the default first: the allowed words of PROFILE.
	profiles = func() []string {
		f, _ := reflect.TypeFor[RetrySettings]().FieldByName("Profile")
		return strings.Split(f.Tag.Get("oneof"), ",")
	}()

	globalSettings  = describe(reflect.TypeFor[Global](), ScopeGlobal)
	sharedSettings  = describe(reflect.TypeFor[Shared](), ScopeShared)
	matcherSettings = describe(reflect.TypeFor[Matcher](), ScopeMatcher)
)

// Reference returns every setting: global ones, those that a route may have too, and those
// that only a route has. The slice belongs to the caller.
func Reference() []Setting {
	var all []Setting
	all = append(all, globalSettings...)
	all = append(all, sharedSettings...)
	return append(all, matcherSettings...)
}

// Profiles returns the names of the profiles, the default first. The slice belongs to the caller.
func Profiles() []string { return slices.Clone(profiles) }

func describe(t reflect.Type, scope Scope) []Setting {
	var list []Setting
	group := ""
	for _, f := range reflect.VisibleFields(t) { // an embedded struct comes before its fields
		if f.Anonymous {
			group = f.Tag.Get("group")
			continue
		}
		s := describeField(f, scope)
		s.Group, s.index = group, f.Index
		list = append(list, s)
	}
	return list
}

func describeField(f reflect.StructField, scope Scope) Setting {
	get := f.Tag.Get
	s := Setting{
		Key: get("env"), Scope: scope, Default: get("envDefault"), Shown: get("shown"), Profiles: profileDefaults(get),
		Unit: get("unit"), Min: get("min"), Max: get("max"), Live: get("live") != "no", About: get("about"), Example: get("example"), field: f.Name,
	}
	if words := get("oneof"); words != "" {
		s.OneOf = strings.Split(words, ",")
	}
	if in, out := get("inbound"), get("outbound"); in != "" {
		s.positions = map[string]string{"inbound": in, "outbound": out}
		s.Shown = in + " inbound, " + out + " outbound" + s.Shown
	}
	if s.Shown == "" {
		s.Shown = s.Default
	}
	if f.Type == reflect.TypeFor[time.Duration]() && s.Max == "" {
		s.Max = DurationText(maxDuration)
	}
	s.typ = f.Type
	s.low, s.high = s.limits(f.Type)
	return s
}

// profileDefaults returns the defaults of a setting by profile, from the tags of the same names.
func profileDefaults(get func(string) string) map[string]string {
	var m map[string]string
	for _, name := range profiles {
		if v := get(name); v != "" {
			if m == nil {
				m = map[string]string{}
			}
			m[name] = v
		}
	}
	return m
}

// Value is one effective setting.
type Value struct {
	Key      string // as in Setting
	Usual    bool   // the setting is one of the usual ones
	Variable string // the variable that set it; "" for the default
	Profile  string // the profile whose default applies; "" if none changes it
	Text     string // in the syntax of the setting, secrets masked; "" if nothing applies
}

// Values returns the effective global settings.
func (s *Settings) Values() []Value {
	return values(globalSettings, reflect.ValueOf(&s.Global).Elem(), s.Variable)
}

// Values returns the effective settings of the route, in the order of Shared.
func (r *Route) Values() []Value {
	list := values(sharedSettings, reflect.ValueOf(&r.Shared).Elem(), r.Variable)
	for i := range list {
		if _, changed := sharedSettings[i].Profiles[r.Profile]; changed && list[i].Variable == "" {
			list[i].Profile = r.Profile
		}
	}
	return list
}

// MatcherValues returns the matchers that the route has.
func (r *Route) MatcherValues() []Value {
	var set []Value
	for _, v := range values(matcherSettings, reflect.ValueOf(&r.Matcher).Elem(), r.matcherVariable) {
		if v.Text != "" {
			set = append(set, v)
		}
	}
	return set
}

// MatchText returns the matchers of the route, such as path /search, methods GET; "" for the route default.
func (r *Route) MatchText() string {
	var parts []string
	for _, m := range r.MatcherValues() {
		parts = append(parts, strings.ToLower(m.Key)+" "+m.Text)
	}
	return strings.Join(parts, ", ")
}

func (r *Route) matcherVariable(key string) string { return r.own[key] }

func values(list []Setting, v reflect.Value, variable func(string) string) []Value {
	out := make([]Value, len(list))
	for i := range list {
		s := &list[i]
		out[i] = Value{Key: s.Key, Usual: s.Example != "", Variable: variable(s.Key)}
		if field := v.FieldByIndex(s.index); s.Default != "" || !field.IsZero() {
			out[i].Text = shownText(field)
		}
	}
	return out
}

// shownText returns a valid field with secrets masked. What follows a question mark is kept: no
// valid field has a secret there.
func shownText(v reflect.Value) string {
	if h, is := v.Interface().(HeaderFields); is {
		v = reflect.ValueOf(h.masked())
	}
	return maskUsers(text(v))
}

// text returns a field in the syntax of the setting. It is the opposite of parsers.
func text(v reflect.Value) string {
	value := v.Interface()
	switch d := value.(type) {
	case time.Duration:
		return DurationText(d)
	case hedge.After:
		if d.Fixed > 0 {
			return DurationText(d.Fixed)
		}
	}
	if v.CanAddr() { // some types have String on the pointer
		if s, is := v.Addr().Interface().(fmt.Stringer); is {
			return s.String()
		}
	}
	return fmt.Sprint(value) // calls String, if there is one
}
