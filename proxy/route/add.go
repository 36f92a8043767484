package route

import "strings"

// collision is a rule that another one cannot be told apart from.
type collision struct {
	with   ref
	method string // "" for all
}

func (c collision) where() string {
	if c.method == "" {
		return ""
	}
	return " for " + c.method
}

// add files e by the pattern's header and methods, except where another rule
// is already.
func (l *leaf) add(p *pattern, e ref) []collision {
	if p.header == "" && len(p.methods) == 0 {
		return fileAny(&l.any, e)
	}
	if l.more == nil {
		l.more = &qualified{}
	}
	if p.header == "" {
		return fileMethods(&l.more.byMethod, p.methods, e)
	}
	c := l.more.headerFor(p.header).choiceFor(p)
	if len(p.methods) == 0 {
		return fileAny(&c.any, e)
	}
	return fileMethods(&c.byMethod, p.methods, e)
}

func fileAny(at *ref, e ref) []collision {
	if *at != 0 {
		return []collision{{with: *at}}
	}
	*at = e
	return nil
}

func fileMethods(at *map[string]ref, methods []string, e ref) []collision {
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
