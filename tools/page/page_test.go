package page

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// usual is some of everything, including text that must never be shown or interpreted.
var usual = []request{
	{"GET", "/search/shoes?token=SECRET{n}", 30},
	{"POST", "/orders/{n}?token=SECRET", 8},
	{"GET", "/report/{n}", 3},
	{"GET", "/broken/%3Cimg%20src=x%20onerror=alert(1)%3E?token=SECRET", 1},
}

func environment(u *upstream) []string {
	return []string{
		"RETRYPROXY_UPSTREAM=http://" + u.address, "RETRYPROXY_ROUTES=search,orders",
		"RETRYPROXY_ROUTE_SEARCH_PATH=/search/*", "RETRYPROXY_ROUTE_ORDERS_PATH=/orders/*",
	}
}

const requestsOf = `Number(document.querySelector('#routes tbody tr:nth-child(2) td[data-label=Requests]')?.textContent.replace(/\D/g, '') ?? 0)`

func TestPageShowsWhatGoesOn(t *testing.T) {
	u := startUpstream(t)
	p := startProxy(t, environment(u)...)
	b := open(t, p, 1280, 900, "light")
	if said := is[string](b, `document.getElementById('more-routes').textContent`); !strings.Contains(said, "No request") {
		t.Errorf("without traffic it says %q", said)
	}
	p.drive(t, usual...)

	b.await("three routes", `[...document.querySelectorAll('#routes .name')].map((n) => n.textContent).join() === 'default,orders,search'`)
	before := is[int](b, requestsOf)
	b.await("moving number", fmt.Sprintf(`%s > %d`, requestsOf, before))
	b.await("recovered requests", `document.querySelectorAll('#recovered tbody tr').length > 2`)
	b.await("failed requests with attempts", `document.querySelectorAll('#failed svg.timeline rect.failed').length > 2`)
	b.await("slow requests", `document.querySelectorAll('#slow tbody tr').length > 5`)
	b.await("a sparkline", `[...document.querySelectorAll('#routes svg.stack path.ok')].some((p) => new Set(p.getAttribute('d').match(/ [\d.]+H/g)).size > 1)`)
	b.await("the reason of a failure", `document.getElementById('routes').innerText.includes('all retries were used')`)
	b.await("a curve", `document.querySelectorAll('#routes svg.curve rect.range').length >= 3`)

	text := is[string](b, `document.documentElement.outerHTML`)
	if strings.Contains(text, "SECRET") || strings.Contains(text, "token=") {
		t.Error("a query is shown")
	}
	if is[bool](b, `document.querySelector('img') !== null`) {
		t.Error("a path became markup")
	}
	if said := b.heardOf(); len(said) > 0 {
		t.Errorf("the browser complains:\n%s", strings.Join(said, "\n"))
	}
}

func TestPausedPageStandsStill(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	p := startProxy(t, environment(u)...)
	p.drive(t, usual...)
	b := open(t, p, 1280, 900, "light")
	b.await("numbers", requestsOf+` > 0`)
	b.do(chromedp.Click(chromedp.CSS("#pause")))
	b.await("a pause", `document.getElementById('link').textContent === 'paused'`)
	before := is[int](b, requestsOf)
	time.Sleep(3 * time.Second) // can only pass wrongly, never fail wrongly
	if now := is[int](b, requestsOf); now != before {
		t.Errorf("%d became %d", before, now)
	}
	b.do(chromedp.Click(chromedp.CSS("#pause")))
	b.await("moving number", fmt.Sprintf(`%s > %d`, requestsOf, before))
}

func TestOpenBreakerIsSaidAndSeen(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	p := startProxy(t, environment(u)...)
	p.drive(t, usual...)
	b := open(t, p, 1280, 900, "light")
	const breaker = `document.querySelector('#upstreams .breaker')`
	b.await("closed breaker", breaker+`?.textContent.includes('closed')`)
	closed := is[string](b, `getComputedStyle(`+breaker+`).color`)

	u.takeAway()
	b.await("open breaker in words", breaker+`.textContent.includes('open')`)
	b.await("open breaker in colour", `getComputedStyle(document.querySelector('#upstreams .breaker.open, #upstreams .breaker.half_open')).color !== '`+closed+`'`)
	b.await("notice", `document.getElementById('notices').textContent.includes('Circuit breaker open:')`)
	b.await("news for who cannot see", `document.getElementById('news').textContent.includes('Circuit breaker open:')`)
	b.await("open breaker in its history", `document.querySelectorAll('#upstreams svg.strip rect.open').length > 0`)
	b.await("its history in words", `/open .* of the time/.test(document.querySelector('#upstreams svg.strip').getAttribute('aria-label'))`)

	u.open()
	b.await("closed breaker again", breaker+`.textContent.includes('closed')`)
	b.await("no notice", `document.getElementById('notices').textContent === ''`)
	b.await("news of it", `document.getElementById('news').textContent.includes('closed again')`)
}

func TestKeyboardReachesEverything(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	p := startProxy(t, environment(u)...)
	p.drive(t, usual...)
	b := open(t, p, 1280, 900, "light")
	b.await("routes", `document.querySelectorAll('#routes .more').length === 3`)
	for _, want := range []string{"a.skip", "#pause", ".more", ".more", ".more"} {
		b.do(chromedp.KeyEvent(kb.Tab))
		if !is[bool](b, `document.activeElement.matches('`+want+`')`) {
			t.Fatalf("after a tab the focus is on %s, expected %s", is[string](b, `document.activeElement.outerHTML.slice(0, 80)`), want)
		}
		if !is[bool](b, `getComputedStyle(document.activeElement).outlineStyle === 'solid' && document.activeElement.getBoundingClientRect().left >= 0`) {
			t.Errorf("the focus on %s is not visible", want)
		}
	}
	open := is[bool](b, `document.activeElement.ariaExpanded === 'true'`)
	b.do(chromedp.KeyEvent(kb.Enter))
	b.await("change by Enter", fmt.Sprintf(`document.activeElement.ariaExpanded === '%v'`, !open))
	b.await("details as the button says", fmt.Sprintf(`document.getElementById(document.activeElement.getAttribute('aria-controls')).hidden === %v`, open))
	time.Sleep(2 * time.Second) // two updates, which must not move the focus
	if !is[bool](b, `document.activeElement.matches('.more')`) {
		t.Error("an update took the focus away")
	}
}

// Every drawing and table has a description, headings are in order, and ids are unique.
func TestReaderFindsItsWay(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	p := startProxy(t, environment(u)...)
	p.drive(t, usual...)
	b := open(t, p, 1280, 900, "light")
	b.await("failed requests", `document.querySelectorAll('#failed tbody tr').length > 2`)
	b.await("all drawings named", `[...document.querySelectorAll('svg')].every((s) => s.getAttribute('role') === 'img' && s.getAttribute('aria-label'))`)
	for what, wrong := range map[string]string{
		"tables without caption": `document.querySelectorAll('table:not(:has(> caption))').length`,
		"headings out of order":  `[...document.querySelectorAll('h1,h2,h3')].map((h) => Number(h.tagName[1])).filter((n, i, all) => i ? n > all[i - 1] + 1 : n !== 1).length`,
		"ids twice":              `(() => { const ids = [...document.querySelectorAll('[id]')].map((e) => e.id); return ids.length - new Set(ids).size })()`,
		"heads without scope":    `document.querySelectorAll('th:not([scope])').length`,
		"inline styles":          `document.querySelectorAll('[style], style, script:not([src])').length`,
	} {
		if n := is[int](b, wrong); n != 0 {
			t.Errorf("%d %s", n, what)
		}
	}
}

// contrast finds the text with the lowest contrast to its background (WCAG 2, section 1.4.3).
const contrast = `(() => {
  const light = (c) => { const [r, g, b] = c.match(/[\d.]+/g).slice(0, 3).map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 }); return 0.2126 * r + 0.7152 * g + 0.0722 * b };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\)$/.test(c)) return c } return 'rgb(255,255,255)' };
  let least = {ratio: 99};
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || !e.checkVisibility() || e.closest('noscript, .hidden, .within')) continue;
    const s = getComputedStyle(e), a = light(e.closest('svg') ? s.fill : s.color), b = light(behind(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < least.ratio) least = {ratio, text: walk.currentNode.textContent.trim().slice(0, 40), class: e.className.baseVal ?? e.className};
  }
  return JSON.stringify(least);
})()`

const contrastRatio = `JSON.parse(` + contrast + `).ratio`

func TestTextHasContrastAndFits(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	p := startProxy(t, environment(u)...)
	p.drive(t, usual...)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 390} {
			b := open(t, p, width, 900, scheme)
			b.await("failed requests", `document.querySelectorAll('#failed tbody tr').length > 2`)
			if ratio := is[float64](b, contrastRatio); ratio < 4.5 {
				t.Errorf("%s, %d px: contrast of %s", scheme, width, is[string](b, contrast))
			}
			if wide := is[int64](b, `document.documentElement.scrollWidth`); wide > width {
				t.Errorf("%s, %d px: the page is %d px wide", scheme, width, wide)
			}
			if dark := is[bool](b, `getComputedStyle(document.documentElement).backgroundColor.match(/\d+/g)[0] < 100`); dark != (scheme == "dark") {
				t.Errorf("%s: the ground is dark: %v", scheme, dark)
			}
		}
	}
}

// The content security policy prevents injected markup and inline scripts.
func TestPolicyForbidsMarkupAndInlineScript(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	p := startProxy(t, environment(u)...)
	b := open(t, p, 1280, 900, "light")
	for what, try := range map[string]string{
		"markup":        `(() => { try { document.body.innerHTML = '<b>x</b>'; return false } catch { return true } })()`,
		"inline script": `(() => { const s = document.createElement('script'); try { s.textContent = 'window.made = 1' } catch {} document.body.append(s); return window.made === undefined })()`,
	} {
		if !is[bool](b, try) {
			t.Errorf("%s went through", what)
		}
	}
	if len(b.heardOf()) == 0 {
		t.Error("the browser told of nothing, so it would not tell of a violation either")
	}
}
