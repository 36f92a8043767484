package page

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
)

// choose selects a value of a filter as a user would.
func (b *tab) choose(filter, value string) {
	b.t.Helper()
	is[bool](b, fmt.Sprintf(`(() => { const s = document.getElementById('filter-%s'); s.value = %q; s.dispatchEvent(new Event('change')); return true })()`, filter, value))
}

// shown counts the rows that contain a text, and those that do not.
func shown(b *tab, words string) (with, without int) {
	b.t.Helper()
	count := `[...document.querySelectorAll('.requests tbody tr')].filter((r) => r.textContent.includes('` + words + `') === %v).length`
	return is[int](b, fmt.Sprintf(count, true)), is[int](b, fmt.Sprintf(count, false))
}

func TestFiltersOfTheRequestsAreInTheFragment(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	p := startProxy(t, environment(u)...)
	stop := p.drive(t, usual...)
	b := open(t, p, 1280, 900, "light")
	b.await("rows of each kind", `['#failed', '#slow', '#recovered'].every((id) => document.querySelectorAll(id + ' tbody tr').length > 0)`)
	stop()
	for _, c := range []struct{ filter, value, rows string }{
		{"route", "search", "/search/"}, {"outcome", "recovered", "recovered"}, {"status", "503", "503"},
	} {
		b.choose(c.filter, c.value)
		if with, without := shown(b, c.rows); with == 0 || without > 0 {
			t.Errorf("%s=%s shows %d rows with it and %d without", c.filter, c.value, with, without)
		}
		if hash := is[string](b, `location.hash`); hash != "#"+c.filter+"="+c.value {
			t.Errorf("the fragment is %q", hash)
		}
		b.choose(c.filter, "")
		if hash := is[string](b, `location.hash`); hash != "" {
			t.Errorf("without a filter the fragment is %q", hash)
		}
	}

	b.choose("route", "search")
	b.choose("outcome", "recovered")
	call(b, page.Reload, page.ReloadParams{})
	b.await("the same rows after a reload", `document.querySelectorAll('.requests tbody tr').length > 0 && document.getElementById('filter-route').value === 'search'`)
	if with, without := shown(b, "recovered"); with == 0 || without > 0 {
		t.Errorf("after a reload %d rows and %d others", with, without)
	}
	is[bool](b, `(() => { document.querySelector('a.skip').click(); return true })()`)
	b.await("the choice beside a link within the page", `location.hash === '#route=search&outcome=recovered' && document.getElementById('filter-outcome').value === 'recovered'`)
}

// A fragment can come from anybody.
func TestFragmentIsTextOnly(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	p := startProxy(t, environment(u)...)
	p.ask(t, "/broken/", "")
	b := open(t, p, 1280, 900, "light")
	b.await("a row", `document.querySelectorAll('#failed tbody tr').length === 1`)
	fragment := "#route=" + url.QueryEscape("<img src=x onerror=alert(1)>"+strings.Repeat("x", 5000)) + "&status=%zz&x=1"
	call(b, page.Navigate, page.NavigateParams{URL: "http://" + p.admin + "/" + fragment})
	b.await("no row", `document.querySelectorAll('#failed tbody tr').length === 0 && document.getElementById('failed-count')?.textContent === '0 of 1'`)
	if said := is[string](b, `document.getElementById('filter-route').value`); len(said) != 128 {
		t.Errorf("the filter is %d characters long", len(said))
	}
	if is[bool](b, `document.querySelector('img') !== null`) {
		t.Error("a fragment became markup")
	}
	call(b, page.Reload, page.ReloadParams{})
	b.await("the same after a reload", `document.getElementById('failed-count')?.textContent === '0 of 1'`)
	if said := b.heardOf(); len(said) > 0 {
		t.Errorf("the browser complains: %q", said)
	}
}
