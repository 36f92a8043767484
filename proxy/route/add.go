package route

import "strings"

// collision is a rule that matches exactly the same requests as another one.
type collision struct {
	with   ref
	method string // "" for all methods
}

func (c collision) where() string {
	if c.method == "" {
		return ""
	}
	return " for " + c.method
}

// add stores e under the pattern's header and methods, except where another rule is stored
// already. It returns those rules.
func (l *leaf) add(p *pattern, e ref) []collision {
	if p.header == "" && len(p.methods) == 0 {
		return storeAny(&l.any, e)
	}
	if l.more == nil {
		l.more = &qualified{}
	}
	if p.header == "" {
		return storeMethods(&l.more.byMethod, p.methods, e)
	}
	c := l.more.headerFor(p.header).choiceFor(p)
	if len(p.methods) == 0 {
		return storeAny(&c.any, e)
	}
	return storeMethods(&c.byMethod, p.methods, e)
}

func storeAny(at *ref, e ref) []collision {
	if *at != 0 {
		return []collision{{with: *at}}
	}
	*at = e
	return nil
}

func storeMethods(at *map[string]ref, methods []string, e ref) []collision {
	if *at == nil {
		*at = map[string]ref{}
	}
	var all []collision
	for _, m := range methods {
		if other := (*at)[m]; other != 0 {
			all = append(all, collision{other, m})
			continue
		}
		(*at)[m] = e
	}
	return all
}

func (l *qualified) headerFor(name string) *header {
	for i := range l.headers {
		if strings.EqualFold(l.headers[i].name, name) {
			return &l.headers[i]
		}
	}
	l.headers = append(l.headers, header{name: name})
	return &l.headers[len(l.headers)-1]
}

func (h *header) choiceFor(p *pattern) *choice {
	if !p.hasValue {
		return &h.present
	}
	if h.values == nil {
		h.values = map[string]*choice{}
	}
	if h.values[p.value] == nil {
		h.values[p.value] = &choice{}
	}
	return h.values[p.value]
}
