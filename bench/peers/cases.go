package main

// testCase is one kind of work with its goal.
type testCase struct {
	name    string
	work    string
	unit    string
	goal    string
	measure func(s *stage, r *result) error
	met     func(r *result) bool
}

var cases = []testCase{
	{"get", "small GET, 64 connections", "us CPU", "<= 0.90 of HAProxy and below nginx",
		func(s *stage, r *result) error { return s.cost(r, &work{path: "/small", connections: 64}) },
		func(r *result) bool { return r.ratio() <= 0.90 && r.belowNginx() }},
	{"distinct", "small GET, 64 connections, no two heads alike", "us CPU", "below HAProxy's",
		func(s *stage, r *result) error {
			return s.cost(r, &work{path: "/distinct", connections: 64, distinct: true})
		},
		func(r *result) bool { return r.ratio() < 1 }},
	{"latency", "small GET, 1 connection: p50 above going directly", "us", "<= HAProxy's",
		(*stage).latency,
		func(r *result) bool { return r.ratio() <= 1 }},
	{"post16k", "POST 16 KiB, 64 connections", "us CPU", "<= 0.75 of HAProxy",
		func(s *stage, r *result) error {
			return s.cost(r, &work{path: "/sink", connections: 64, method: "POST", body: 16 << 10})
		},
		func(r *result) bool { return r.ratio() <= 0.75 }},
	{"get1m", "GET 1 MiB, 16 connections", "us CPU", "<= 0.80 of HAProxy",
		func(s *stage, r *result) error { return s.cost(r, &work{path: "/bytes/1048576", connections: 16}) },
		func(r *result) bool { return r.ratio() <= 0.80 }},
	{"put16m", "PUT 16 MiB, 4 connections", "us CPU", "<= 0.80 of HAProxy",
		func(s *stage, r *result) error {
			return s.cost(r, &work{path: "/sink", connections: 4, method: "PUT", body: 16 << 20})
		},
		func(r *result) bool { return r.ratio() <= 0.80 }},
	// So many connections that those which wait leave the proxy as busy as
	// HAProxy, which retries at once: an idle processor's wakeups are dear.
	{"fail10", "10 % of answers 503, 512 connections", "us CPU", "<= 1.1 of HAProxy; failed at most 3 x 0.1^4",
		func(s *stage, r *result) error { return s.cost(r, &work{path: "/fail/10", connections: 512}) },
		func(r *result) bool { return r.ratio() <= 1.1 && r.failedShare() <= 3e-4 }},
	{"rest", "memory at rest, after one request", "MiB PSS", "<= 9 MiB",
		(*stage).rest,
		func(r *result) bool { return r.ours() <= 9 }},
	{"idle", "memory per idle keep-alive connection", "KiB PSS", "<= 5 KiB",
		(*stage).idle,
		func(r *result) bool { return r.ours() <= 5 }},
	{"waiting", "memory per request waiting in backoff (budget and outage handling off)", "KiB PSS", "<= 12 KiB",
		(*stage).waiting,
		func(r *result) bool { return r.ours() <= 12 }},
	{"start", "start to first proxied request", "ms", "<= 30 ms",
		(*stage).start,
		func(r *result) bool { return r.ours() <= 30 }},
	{"cores", "small GET, 256 connections, throughput of two cores over one", "x", ">= 1.8",
		(*stage).scaling,
		func(r *result) bool { return r.ours() >= 1.8 }},
}

func caseNames() []string {
	var all []string
	for _, c := range cases {
		all = append(all, c.name)
	}
	return all
}
