package page

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestTimesAreInTheBrowsersZoneAndHaveUTC(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	p := startProxy(t, append(environment(u), "RETRYPROXY_QUEUE_TIMEOUT=1s")...)
	p.ask(t, "/broken/", "")
	u.takeAway()
	p.ask(t, "/", "") // the connection fails
	b := open(t, p, 1280, 900, "light")
	b.await("two failed requests", `document.querySelectorAll('#failed tbody time').length === 2`)
	b.await("a failed connection", `document.querySelector('#upstreams time') !== null`)
	if now := is[string](b, `document.getElementById('now').textContent`); !regexp.MustCompile(`^\d\d:\d\d:\d\d Asia/(Kolkata|Calcutta) \(UTC\+05:30\)$`).MatchString(now) {
		t.Errorf("the header says %q", now)
	}
	for _, where := range []string{"#now", "#failed time", "#upstreams time"} {
		shown := is[string](b, `document.querySelector('`+where+`').textContent`)
		title := is[string](b, `document.querySelector('`+where+`').title`)
		at, err := time.Parse("2006-01-02 15:04:05 UTC", title)
		if err != nil || time.Since(at).Abs() > time.Minute {
			t.Errorf("%s: the title is %q, %v", where, title, err)
		}
		if local := at.Add(5*time.Hour + 30*time.Minute).Format("15:04:05"); !strings.HasPrefix(shown, local) {
			t.Errorf("%s: %q is not %s", where, shown, local)
		}
	}
}

func TestTimesOfOtherDaysHaveTheirDate(t *testing.T) {
	t.Parallel()
	p := startProxy(t, environment(startUpstream(t))...)
	b := open(t, p, 1280, 900, "light")
	const of = `import('/page/moment.js').then((m) => { window.made = m.moment(Date.UTC(2026, 0, 2, 21, 4, 5)).textContent }); true`
	is[bool](b, of)
	b.await("a date", `window.made === '2026-01-03 02:34:05'`)
}
