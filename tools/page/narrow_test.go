package page

import (
	"fmt"
	"strings"
	"testing"
)

// A phone: the page takes at most three screens, even with failures and many routes.
const phoneWidth, phoneHeight, phoneScreens = 390, 844, 3

// manyRoutes returns the environment for n routes, and some traffic for each.
func manyRoutes(u *upstream, n int) (environ []string, traffic []request) {
	var names []string
	for i := range n {
		name := fmt.Sprintf("route%d", i)
		names = append(names, name)
		environ = append(environ, fmt.Sprintf("RETRYPROXY_ROUTE_%s_PATH=/broken/%d/*", strings.ToUpper(name), i))
		traffic = append(traffic, request{"GET", fmt.Sprintf("/broken/%d/{n}", i), 2})
	}
	return append(environ, "RETRYPROXY_UPSTREAM=http://"+u.address, "RETRYPROXY_ROUTES="+strings.Join(names, ",")), append(traffic, usual...)
}

const (
	pageHeight = `document.documentElement.scrollHeight`
	hidden     = `[...document.querySelectorAll('main td[data-label], main .id, main svg')].filter((e) => !e.checkVisibility() && !(e.matches('td') && !e.textContent)).length`
)

func TestPhoneNeedsFewerThanThreeScreens(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	environ, traffic := manyRoutes(u, 11)
	p := startProxy(t, environ...)
	p.drive(t, traffic...)
	b := open(t, p, phoneWidth, phoneHeight, "light")
	b.await("twelve routes", `document.querySelectorAll('#routes tbody').length === 12`)
	b.await("full lists", `document.querySelectorAll('#failed tbody tr').length === 24 && document.querySelectorAll('#slow tbody tr').length === 12`)
	if height := is[int](b, pageHeight); height >= phoneScreens*phoneHeight {
		t.Errorf("the page is %d px tall, expected less than %d", height, phoneScreens*phoneHeight)
	}
	u.takeAway()
	b.await("open breaker", `document.querySelector('#upstreams .breaker.open, #upstreams .breaker.half_open') !== null`)
	if height := is[int](b, pageHeight); height >= phoneScreens*phoneHeight {
		t.Errorf("in an outage the page is %d px tall, expected less than %d", height, phoneScreens*phoneHeight)
	}
}

// summaries are the elements that unfold rows and lists on a phone.
var summaries = []string{"#failed tbody .unfold > summary", "#upstreams .unfold > summary", "#failed-list > .rest > summary"}

// What is hidden on a phone can be unfolded, and a wide screen shows it at once.
func TestDetailsAreShownOnDemand(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	p := startProxy(t, environment(u)...)
	p.drive(t, usual...)
	phone := open(t, p, phoneWidth, phoneHeight, "light")
	phone.await("failed requests", `document.querySelectorAll('#failed tbody tr').length > 5`)
	if n := is[int](phone, hidden); n == 0 {
		t.Error("a phone shows everything at once")
	}
	if n := is[int](phone, `[...document.querySelectorAll('#failed tbody tr')].filter((r) => r.checkVisibility()).length`); n != 5 {
		t.Errorf("a phone shows %d failed requests, expected 5", n)
	}
	for _, id := range []string{"#failed tbody .id", "#failed tbody svg", "#upstreams td[data-label=Budget]"} {
		if is[bool](phone, `document.querySelector('`+id+`').checkVisibility()`) {
			t.Errorf("a phone shows %s without demand", id)
		}
	}
	for _, summary := range summaries {
		if !is[bool](phone, `document.querySelector('`+summary+`').checkVisibility()`) {
			t.Errorf("on a phone nothing unfolds %s", summary)
		}
	}
	const unfold = `(() => { document.querySelectorAll('details').forEach((d) => { d.open = true }); document.querySelectorAll('[aria-expanded=false]').forEach((b) => b.click()); return true })()`
	phone.await("everything on demand", `(() => { `+unfold+`; return `+hidden+` === 0 })()`)
	if wide := is[int](phone, `document.documentElement.scrollWidth`); wide > phoneWidth {
		t.Errorf("with everything unfolded the page is %d px wide", wide)
	}

	wide := open(t, p, 1280, 900, "light")
	wide.await("all lists", `['#failed', '#slow', '#recovered'].every((id) => document.querySelectorAll(id + ' tbody tr').length > 0)`)
	for _, summary := range summaries {
		if is[bool](wide, `document.querySelector('`+summary+`').checkVisibility()`) {
			t.Errorf("a wide screen shows %s, which has nothing to unfold", summary)
		}
	}
	wide.await("everything of all requests at once", `[...document.querySelectorAll('#requests td, #requests .id, #requests svg, #upstreams svg')].every((e) => e.checkVisibility())`)
}

// An unfolded row stays unfolded when new ones arrive.
func TestUnfoldedRowStaysUnfolded(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	p := startProxy(t, environment(u)...)
	p.ask(t, "/broken/first", "the-first")
	b := open(t, p, phoneWidth, phoneHeight, "light")
	b.await("a row", `document.querySelector('#failed tbody .unfold') !== null`)
	is[bool](b, `document.querySelector('#failed tbody .unfold').open = true`)
	p.ask(t, "/broken/second", "the-second")
	b.await("two rows, the first one unfolded", `[...document.querySelectorAll('#failed tbody tr')].map((r) => r.querySelector('.id').checkVisibility() ? r.querySelector('.id').textContent : '').join() === ',the-first'`)
}
