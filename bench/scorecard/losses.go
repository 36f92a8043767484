package main

import (
	"fmt"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/overload"
)

// quick is a server that takes 5 ms for any number of requests.
var quick = overload.Flat(5*ms, 0)

// losses returns rows in which every idempotent request is to succeed.
func losses() []*row {
	all := []*row{restartVirtual(), restartThousand(), unfinishedBodies(), hurried()}
	for _, how := range []string{"rst", "fin"} {
		for _, down := range []time.Duration{1500 * ms, 5 * second} {
			all = append(all, acceptThen(how, down))
		}
	}
	for _, slow := range []time.Duration{6 * second, 12 * second} {
		all = append(all, refusedThenSlow(slow))
	}
	for _, r := range all {
		r.with(lost(0))
	}
	return all
}

// acceptThen is an outage behind something that still accepts connections.
func acceptThen(how string, down time.Duration) *row {
	words := map[string]string{"rst": "reset", "fin": "closed"}
	const from, after = 3 * second, 7 * second
	return &row{
		name: fmt.Sprintf("accept then %s %v", how, down), how: fmt.Sprintf("for %v each connection is accepted, then %s", down, words[how]), model: quick,
		users: []users{always(100, 30*second, 1, from+down+after)}, fault: span{from, from + down}, end: from + down + after,
		steps: []step{{from, order(how)}, {from + down, order("accept")}}, light: 40,
	}
}

// refusedThenSlow are twenty clients that come while connections are refused.
func refusedThenSlow(slow time.Duration) *row {
	as := overload.Flat(slow, 0)
	return &row{
		name: fmt.Sprintf("refused then %v", slow), how: fmt.Sprintf("outbound; twenty requests come while connections are refused for half a second; then responses take %v", slow), model: quick, settings: outbound,
		users: []users{{burst: 20, patience: 30 * second, when: []span{{2500 * ms, 2900 * ms}}, path: twentyURLs}, always(5, 30*second, 1, 2*second)},
		fault: span{2500 * ms, 3 * second}, end: 3 * second, steps: []step{{2500 * ms, killIt}, {3 * second, startAs(0, &as)}}, light: 10,
	}
}

// restartVirtual replaces the server behind a virtual address three times. For 200 ms the address still leads
// to the old one, as it does until all nodes have heard of the change.
func restartVirtual() *row {
	r := &row{
		name: "rolling restart behind a virtual address", how: "behind a virtual address, three times a new server is started and the old one killed; for 200 ms the address still leads to the old one",
		model: quick, servers: 2, virtual: true, users: []users{always(100, 30*second, 1, 20*second)}, fault: span{3 * second, 13 * second}, end: 20 * second, light: 40,
		steps: []step{{0, kill(1)}},
	}
	for i := range 3 {
		at, old, next := time.Duration(3+5*i)*second, i%2, 1-i%2
		r.steps = append(r.steps, step{at, start(next)}, step{at + second, kill(old)}, step{at + 1200*ms, lead(next)})
	}
	return r
}

// restartThousand kills the server with a thousand requests in flight.
func restartThousand() *row {
	return &row{
		name: "restart with 1000 in flight", how: "the server is killed with a thousand GETs in flight, and started again 2 s later", model: overload.Flat(4*second, 0),
		users: []users{{burst: 1000, patience: 60 * second, when: []span{{second, 2 * second}}, path: twentyURLs}},
		fault: span{3 * second, 5 * second}, end: 6 * second, steps: []step{{3 * second, killIt}, {5 * second, backUp}},
	}
}

// unfinishedBodies are ten clients that never finish their requests while the server is killed for a second.
func unfinishedBodies() *row {
	never := users{burst: 10, patience: time.Minute, when: []span{{second, 2 * second}}, path: twentyURLs, method: "POST", body: 1000, sent: 10}
	return &row{
		name: "unfinished bodies", how: "ten clients never finish the bodies of their requests; the server is killed for a second", model: quick,
		users: []users{always(20, 30*second, 1, 20*second)}, others: []users{never}, fault: span{6 * second, 7 * second}, end: 20 * second,
		steps: []step{{6 * second, killIt}, {7 * second, backUp}}, light: 10,
	}
}

// hurried are clients whose patience is less than responses take, beside others.
func hurried() *row {
	few := users{rate: 20, patience: 50 * ms, when: []span{{4 * second, 16 * second}}, path: twentyURLs}
	return &row{
		name: "deadlines of 50 ms", how: "20 requests a second come from clients that wait 50 ms, beside 20 a second of others; responses take 100 ms", model: overload.Flat(100*ms, 0),
		users: []users{always(20, 5*second, 1, 20*second)}, others: []users{few}, fault: span{4 * second, 16 * second}, end: 20 * second, light: 10,
	}
}

// hanging returns clients of a URL that never responds. They wait for longer than any row takes.
func hanging(method string, rate float64, when span) users {
	u := users{rate: rate, patience: time.Minute, when: []span{when}, path: func(int) string { return "/hang" }}
	if method != "GET" {
		u.method, u.body = method, 1000
	}
	return u
}

// lockouts returns rows in which one URL hangs. Its requests must not stop others.
func lockouts() (all []*row) {
	for _, rate := range []float64{1, 2, 5, 20, 50, 100} {
		all = append(all, lockout(fmt.Sprintf("POST %v/s", rate), "", hanging("POST", rate, hangs), nil))
	}
	variants := []struct {
		name     string
		method   string
		settings []string
	}{
		{"GET", "GET", nil}, {"outbound", "POST", outbound}, {"fail-fast", "POST", []string{"RETRYPROXY_BREAKER=fail-fast"}}, {"HEALTH_PATH", "POST", []string{"RETRYPROXY_HEALTH_PATH=/ok"}},
	}
	for _, v := range variants {
		all = append(all, lockout(v.name+" 20/s", ", "+v.name, hanging(v.method, 20, hangs), v.settings))
	}
	queries := hanging("GET", 20, hangs)
	queries.path = func(n int) string { return fmt.Sprint("/hang?", n) }
	all = append(all, lockout("/hang?n 20/s", ", each time with another query", queries, nil), polled())
	for _, rate := range []float64{0.5, 1, 2, 5, 20, 100} {
		all = append(all, beside(rate, 20))
	}
	all = append(all, beside(0.5, 1), besideStop(2), besideStop(5))
	for _, r := range all {
		r.with(lost(0))
	}
	return all
}

// hangs is when hanging requests come: from the pause of the users on.
var hangs = span{4 * second, 20 * second}

// lockout lets users pause for 3 s when a URL begins to hang, and come back.
func lockout(name, how string, hang users, settings []string) *row {
	u := always(10, 5*second, 1, 0)
	u.path, u.when = ok, []span{{0, 4 * second}, {7 * second, 22 * second}}
	rate := max(int(hang.rate), 5)
	return &row{
		name: "lockout: " + name, how: fmt.Sprintf("users of 10 requests a second pause for 3 s while %v a second begin to come to a URL that hangs%s", hang.rate, how), model: overload.Flat(ms, 0),
		users: []users{u}, others: []users{hang}, fault: hangs, end: 22 * second, settings: settings, light: rate,
	}
}

func ok(int) string { return "/ok" }

// polled is a lockout beside long polls.
func polled() *row {
	r := lockout("long polls beside", "; beside them are long polls of 20 s", hanging("POST", 20, hangs), nil)
	r.users = append(r.users, users{rate: 1, patience: 28 * second, when: []span{{0, 10 * second}}, path: func(int) string { return "/poll" }})
	return r
}

// beside lets users come all the time while a URL hangs, and after it.
func beside(rate, hang float64) *row {
	const from, to, end = 4 * second, 28 * second, 52 * second
	u := always(rate, 5*second, 1, end)
	u.path = ok
	return &row{
		name: fmt.Sprintf("beside: users %v/s hanging %v/s", rate, hang), how: fmt.Sprintf("users of %v requests a second come beside %v a second to a URL that hangs for 24 s, and for 24 s afterwards", rate, hang), model: overload.Flat(ms, 0),
		users: []users{u}, others: []users{hanging("POST", hang, span{from, to})}, fault: span{from, to}, end: end, light: max(int(hang), 5) + int(rate)/5,
	}
}

// besideStop is the same with an outage in between, so that the breaker opens for a good reason.
func besideStop(rate float64) *row {
	r := beside(rate, 20)
	r.name = fmt.Sprintf("beside: users %v/s hanging 20/s and a stop", rate)
	r.how += "; in between the server is stopped for 2 s"
	r.steps = []step{{10 * second, stopIt}, {12 * second, goOn}}
	return r
}
