package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// KeepFrom restores the values of old that only a restart can change, and returns the
// variables whose new values therefore do not apply. Call it before s is used.
func (s *Settings) KeepFrom(old *Settings) (kept []string) {
	newValue, oldValue := reflect.ValueOf(&s.Global).Elem(), reflect.ValueOf(&old.Global).Elem()
	for i := range globalSettings {
		g := &globalSettings[i]
		to, from := newValue.FieldByIndex(g.index), oldValue.FieldByIndex(g.index)
		if g.Live || text(to) == text(from) {
			continue
		}
		to.Set(from)
		kept = append(kept, Prefix+g.Key)
	}
	kept = append(kept, s.keepListen(old)...)
	return kept
}

// keepListen restores the main listener of old, and returns the variables of listeners that are not open.
func (s *Settings) keepListen(old *Settings) (kept []string) {
	if was := old.Default.Listen; s.Default.Listen != was {
		kept = append(kept, Prefix+"LISTEN")
		for _, r := range s.All() {
			if !r.ownListen() {
				r.Listen = was
			}
		}
	}
	open := map[Address]bool{}
	for _, a := range old.Listeners() {
		open[a] = true
	}
	for i := range s.Routes {
		if r := &s.Routes[i]; !open[r.Listen] {
			kept = append(kept, routePrefix(r.Name)+"LISTEN")
		}
	}
	return kept
}

// maxChanges limits the list that Changed returns.
const maxChanges = 50

// Changed returns the differences from old, sorted: variables without a route by name, routes as a
// whole. The list ends in "..." if it is truncated.
func (s *Settings) Changed(old *Settings) []string {
	was, is := old.texts(), s.texts()
	var changes []string
	for name, text := range is {
		if was[name] != text {
			changes = append(changes, name)
		}
	}
	for name := range was {
		if _, stays := is[name]; !stays {
			changes = append(changes, name)
		}
	}
	slices.Sort(changes)
	if len(changes) > maxChanges {
		changes = append(changes[:maxChanges:maxChanges], "...")
	}
	return changes
}

// texts returns the values of the variables without a route, and of each route as a whole.
func (s *Settings) texts() map[string]string {
	all := map[string]string{}
	for _, v := range append(s.Values(), s.Default.Values()...) {
		all[Prefix+v.Key] = v.Text
	}
	for i := range s.Routes {
		r := &s.Routes[i]
		var b strings.Builder
		for _, v := range append(r.MatcherValues(), r.Values()...) {
			fmt.Fprintln(&b, v.Key, v.Text)
		}
		all["route "+r.Name] = b.String()
	}
	return all
}
