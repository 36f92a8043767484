package route

import "strings"

// leaf holds the rules that differ only in header and methods.
type leaf struct {
	any  ref        // the rule without header and methods
	more *qualified // nil if there are none
}

// qualified holds rules with header or methods.
type qualified struct {
	byMethod map[string]ref // rules without header
	headers  []header       // by name, in the order of the rules
}

// header holds the rules for one header name.
type header struct {
	name    string // as spelled in its first rule
	present choice // for any value
	values  map[string]*choice
}

// choice holds rules with the same header that differ only in their methods.
type choice struct {
	any      ref
	byMethod map[string]ref
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

// pick returns the leaf's rule for the request, 0 if none matches.
func (l *leaf) pick(q *query) ref {
	q.lookups++
	if l.more != nil {
		if e := l.more.pick(q); e != 0 {
			return e
		}
	}
	return l.any
}

func (l *qualified) pick(q *query) ref {
	if l.headers != nil && q.header != nil {
		if e := l.pickHeader(q); e != 0 {
			return e
		}
	}
	return l.byMethod[string(q.method)]
}

// pickHeader returns the best rule over all header names: a value ranks above presence,
// then methods above none, then the order of the rules.
func (l *qualified) pickHeader(q *query) ref {
	var best ref
	bestRank := 0
	for i := range l.headers {
		h := &l.headers[i]
		q.lookups++
		value, ok := q.header.Lookup(h.name)
		if !ok {
			continue
		}
		e, rank := h.pick(value, q)
		if e != 0 && (best == 0 || rank > bestRank || rank == bestRank && e < best) {
			best, bestRank = e, rank
		}
	}
	return best
}

func (h *header) pick(value []byte, q *query) (e ref, rank int) {
	if c := h.values[string(value)]; c != nil {
		if e, rank = c.pick(q); e != 0 {
			return e, rank + 2
		}
	}
	return h.present.pick(q)
}

// pick ranks a rule that lists the method 1, and one for any method 0.
func (c *choice) pick(q *query) (e ref, rank int) {
	if e := c.byMethod[string(q.method)]; e != 0 {
		return e, 1
	}
	return c.any, 0
}
