package page

import "testing"

func TestQuantileOfFewRequestsSaysSo(t *testing.T) {
	t.Parallel()
	u := startUpstream(t)
	p := startProxy(t, environment(u)...)
	ask := func(times int) {
		for range times {
			p.ask(t, "/", "")
		}
	}
	ask(12)
	b := open(t, p, 1280, 900, "light")
	const clients, attempts, median = `document.querySelector('#routes tbody tr:nth-child(2) td[data-label="Clients 99 %"]')`,
		`document.querySelector('#routes tbody tr:nth-child(2) td[data-label="Attempts 99 %"]')`, `document.querySelector('#routes tbody tr:nth-child(2) td[data-label="Clients median"]')`
	b.await("p99 of 12 requests", clients+`?.title === '99th percentile of 12 requests' && / of 12 requests$/.test(`+clients+`.textContent)`)
	b.await("p99 of 12 attempts", `/ of 12 attempts$/.test(`+attempts+`.textContent)`)
	b.await("p50, for which 12 are enough", `/^<[\d.]+\u202fms$/.test(`+median+`.textContent)`)
	ask(88)
	b.await("p99 of enough requests", `/^<[\d.]+\u202fms$/.test(`+clients+`.textContent) && !`+clients+`.title`)
}
