package config

import (
	"reflect"
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

// Changed returns the differences from old: variables without a route by name, routes as a
// whole. The list ends in "..." if it is truncated.
func (s *Settings) Changed(old *Settings) []string {
	changes := differ(Prefix, old.Values(), s.Values())
	changes = append(changes, differ(Prefix, old.Default.Values(), s.Default.Values())...)
	before := map[string]*Route{}
	for i := range old.Routes {
		before[old.Routes[i].Name] = &old.Routes[i]
	}
	for i := range s.Routes {
		r := &s.Routes[i]
		was := before[r.Name]
		delete(before, r.Name)
		if was == nil || !reflect.DeepEqual(texts(was), texts(r)) {
			changes = append(changes, "route "+r.Name)
		}
	}
	for i := range old.Routes {
		if name := old.Routes[i].Name; before[name] != nil {
			changes = append(changes, "route "+name)
		}
	}
	if len(changes) > maxChanges {
		changes = append(changes[:maxChanges:maxChanges], "...")
	}
	return changes
}

// differ returns the keys whose texts differ. Both lists must be in the same order.
func differ(prefix string, a, b []Value) []string {
	var names []string
	for i := range a {
		if a[i].Text != b[i].Text {
			names = append(names, prefix+a[i].Key)
		}
	}
	return names
}

func texts(r *Route) []string {
	var list []string
	for _, v := range append(r.Values(), r.MatcherValues()...) {
		list = append(list, v.Key+"="+v.Text)
	}
	return list
}
