package sim

import "time"

// calendar is a priority queue for events with unrelated delays. Events of the near future
// are in a heap, which is therefore small. The rest is kept unsorted, in pages of time,
// until its page is due.
type calendar struct {
	near  []event // heap: due before page
	page  int64   // number of the first page that is still unsorted
	pages [][]event
	far   []event // after the last page
	later int     // events in pages and far
}

const (
	calendarPages = 1024 // a power of two
	pageBits      = 24   // a page is 2^24 ns, 17 ms
)

func pageOf(at time.Duration) int64 { return int64(at) >> pageBits }

// schedule adds an event.
func (c *calendar) schedule(e event) {
	page := pageOf(e.at)
	switch {
	case page < c.page:
		c.push(e)
		return
	case page < c.page+calendarPages:
		p := &c.pages[page%calendarPages]
		*p = append(*p, e)
	default:
		c.far = append(c.far, e)
	}
	c.later++
}

// head returns the earliest event, or nil if none is due by until.
func (c *calendar) head(until time.Duration) *event {
	for len(c.near) == 0 && c.later > 0 && pageOf(until) >= c.page {
		c.loadPage()
	}
	if len(c.near) == 0 {
		return nil
	}
	return &c.near[0]
}

// loadPage moves the first page to the heap.
func (c *calendar) loadPage() {
	if c.page%calendarPages == 0 {
		c.sortFar()
	}
	p := &c.pages[c.page%calendarPages]
	c.page++
	c.later -= len(*p)
	for _, e := range *p {
		c.push(e)
	}
	*p = (*p)[:0]
}

// sortFar moves events of far into pages if they are now within their range.
func (c *calendar) sortFar() {
	kept := c.far[:0]
	for _, e := range c.far {
		if page := pageOf(e.at); page < c.page+calendarPages {
			p := &c.pages[page%calendarPages]
			*p = append(*p, e)
			continue
		}
		kept = append(kept, e)
	}
	c.far = kept
}

// The heap has four children per node: half as deep as a binary one, and the four are
// adjacent in memory.
const children = 4

func (c *calendar) push(e event) {
	c.near = append(c.near, e)
	h := c.near
	i := len(h) - 1
	for i > 0 {
		p := (i - 1) / children
		if !e.before(&h[p]) {
			break
		}
		h[i] = h[p]
		i = p
	}
	h[i] = e
}

// take removes and returns the earliest event. The heap must not be empty.
func (c *calendar) take() event {
	h := c.near
	first, last := h[0], len(h)-1
	e := h[last]
	h = h[:last]
	c.near = h
	if last == 0 {
		return first
	}
	i := 0
	for {
		k := i*children + 1
		if k >= last {
			break
		}
		for o, end := k+1, min(k+children, last); o < end; o++ {
			if h[o].before(&h[k]) {
				k = o
			}
		}
		if !h[k].before(&e) {
			break
		}
		h[i] = h[k]
		i = k
	}
	h[i] = e
	return first
}
