package page

import (
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
)

// hide makes the page believe that its tab is in the background, or visible again.
func (b *tab) hide(hidden bool) {
	b.t.Helper()
	is[bool](b, `(() => { Object.defineProperty(document, 'hidden', {configurable: true, value: `+map[bool]string{true: "true", false: "false"}[hidden]+`});
	  document.dispatchEvent(new Event('visibilitychange')); return true })()`)
}

const icon = `document.querySelector('link[rel=icon]').getAttribute('href')`

func TestTitleSaysWhichHostHowItIs(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	u := startUpstream(t)
	p := startProxy(t, environment(u)...)
	p.drive(t, usual...)
	b := open(t, p, 1280, 900, "light")
	b.await("healthy title", `document.title.startsWith('healthy · ')`)
	title := is[string](b, `document.title`)
	version, _, _ := strings.Cut(strings.TrimPrefix(is[string](b, `document.getElementById('about').textContent`), "version "), ",")
	if version == "" || title != "healthy · "+host+" · retryproxy "+version {
		t.Errorf("the title is %q, host %q, version %q", title, host, version)
	}
	if shown := is[string](b, `document.getElementById('host').textContent`); shown != host {
		t.Errorf("the header says %q, expected %q", shown, host)
	}
	healthy := is[string](b, icon)

	u.takeAway()
	b.await("open breaker in the title", `document.title.startsWith('circuit breaker open')`)
	b.await("open breaker in the header", `document.getElementById('health').textContent === 'circuit breaker open'`)
	if now := is[string](b, icon); now == healthy {
		t.Errorf("the icon is still %s", now)
	}

	b.hide(true) // from now on the page refreshes rarely
	u.open()
	b.await("healthy title in the background", `document.title.startsWith('healthy · ')`)
	b.hide(false)
	b.do(chromedp.Click(chromedp.CSS("#pause")))
	b.await("title that promises nothing", `document.title.startsWith('paused · ') && document.getElementById('health').textContent === 'unknown'`)
	if now := is[string](b, icon); now == healthy {
		t.Error("a paused page has the icon of a healthy one")
	}
}

// During an outage nothing fails at first, so queued requests must be visible.
func TestQueuedRequestsAreSeenAtTheTop(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	p := startProxy(t, environment(u)...)
	p.ask(t, "/", "")
	b := open(t, p, 1280, 900, "light")
	b.await("no queue", `document.getElementById('queue').hidden && document.title.startsWith('healthy')`)
	u.takeAway()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { p.ask(t, "/", "") })
	}
	const queue = `8 queued, longest [1-9]\d* s`
	b.await("queue in the header", `/^`+queue+`$/.test(document.getElementById('queue').textContent) && document.getElementById('queue').checkVisibility()`)
	b.await("queue in the title", `/^circuit breaker open, `+queue+` · /.test(document.title)`)
	b.await("queue of the upstream", `/^8 longest [1-9]\d* s$/.test(document.querySelector('#upstreams td[data-label=Queued]').textContent)`)
	u.open()
	all.Wait()
	b.await("no queue any more", `document.getElementById('queue').hidden`)
}

// A rate limit also queues requests without an outage.
func TestQueueingIsSaidWithoutAnOutage(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	p := startProxy(t, append(environment(u), "RETRYPROXY_RATE_LIMIT=1/s", "RETRYPROXY_RATE_LIMIT_WAIT=10s")...)
	b := open(t, p, 1280, 900, "light")
	b.await("healthy title", `document.title.startsWith('healthy · ')`)
	healthy := is[string](b, icon)
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() { p.ask(t, "/", "") })
	}
	b.await("queueing title", `/^queueing, \d queued, longest /.test(document.title)`)
	if now := is[string](b, icon); now == healthy {
		t.Errorf("the icon is still %s", now)
	}
	all.Wait()
}
