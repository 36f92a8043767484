package main

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// The proxies that are compared.
const (
	haproxy = "haproxy"
	nginx   = "nginx"
	ours    = "retryproxy"
)

// peers are configured to retry what they can, reuse connections and forward the client's address, as
// retryproxy does by default. nginx has the upstream twice because it only retries on another server.
// If root starts nginx, its workers run as another user.
var peers = map[string]rig.Peer{
	haproxy: {Program: haproxy, Args: []string{"-db", "-q", "-f"}, Config: `global
  nbthread 1
  maxconn 9950
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 60s
  option forwardfor
  retries 3
  retry-on conn-failure empty-response response-timeout 500 502 503 504
  http-reuse always
frontend f
  bind {listen} backlog 8192{wire}
  default_backend b
backend b
  server s1 {upstream}{wireUp}
`},
	nginx: {Program: nginx, Args: []string{"-c"}, Config: `worker_processes 1; daemon off; pid {dir}/pid; error_log {dir}/errors error;
events { worker_connections 32768; }
http { access_log off; keepalive_requests 1000000000; keepalive_timeout 600s; client_body_buffer_size 1m;
  client_body_temp_path {dir}/bodies; proxy_temp_path {dir}/answers; client_max_body_size 100m;
  upstream up { server {upstream} max_fails=0; server {upstream} max_fails=0; keepalive 512; keepalive_requests 1000000000; }
  server { listen {listen} backlog=8192{wire};
    location / { proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_next_upstream error timeout http_500 http_502 http_503 http_504 http_429; proxy_next_upstream_tries 4; }
  } }
`},
}

// toGRPC makes nginx speak gRPC with the upstream.
var toGRPC = strings.NewReplacer(
	`proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection "";`, "grpc_pass grpc://up;",
	"proxy_set_header", "grpc_set_header", "proxy_next_upstream", "grpc_next_upstream")

// begin starts one of the proxies and does not wait. It does not ask retryproxy's admin listener for
// readiness, because that would add to its memory.
func (s *stage) begin(b *rig.Bed, name string, cores []int, env ...string) (*rig.Proxy, error) {
	wire, err := s.wire.settings(b, name)
	if err != nil {
		return nil, err
	}
	if name == ours {
		env = append(env, wire...)
		return b.Start(s.ctx, rig.Spec{Program: s.proxy, Upstream: s.upstreamURL(), Cores: cores, Env: append(env, s.env...), Now: true})
	}
	p := peers[name]
	if s.grpc != "" {
		p.Config = toGRPC.Replace(p.Config)
	}
	up := ""
	if s.wireUp == h2c {
		up = " proto h2"
	}
	p.Now, p.Config = true, strings.NewReplacer("{wire}", strings.Join(wire, ""), "{wireUp}", up).Replace(p.Config)
	return b.StartPeer(p, s.upstream, cores)
}

// upstreamURL returns the upstream for retryproxy.
func (s *stage) upstreamURL() string {
	if s.wireUp == h2c {
		return "h2c://" + s.upstream
	}
	return "http://" + s.upstream
}

// wire is what clients speak.
type wire int

const (
	http11 wire = iota
	h2c         // HTTP/2 without TLS
	h2          // HTTP/2 over TLS
)

// settings returns what a proxy needs to speak it: settings of retryproxy, options of a peer's listener.
func (w wire) settings(b *rig.Bed, name string) ([]string, error) {
	switch {
	case w == http11, w == h2c && name == ours:
		return nil, nil
	case w == h2c:
		return map[string][]string{haproxy: {" proto h2"}, nginx: {" http2"}}[name], nil
	}
	file := b.TempDir() + "/pem"
	if err := rig.WriteCertificate(file, net.IPv4(127, 0, 0, 1), time.Now().Add(time.Hour)); err != nil {
		return nil, err
	}
	return map[string][]string{
		ours:    {"RETRYPROXY_TLS_CERT=" + file},
		haproxy: {" ssl crt ", file, " alpn h2"},
		nginx:   {" ssl http2; ssl_certificate ", file, "; ssl_certificate_key ", file},
	}[name], nil
}

// proxyOn starts one of the proxies and waits until it accepts connections.
func (s *stage) proxyOn(b *rig.Bed, name string, cores []int, env ...string) (*rig.Proxy, error) {
	p, err := s.begin(b, name, cores, env...)
	if err == nil {
		err = p.AwaitPort(p.Addr)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// inTurn starts all proxies and gives each a turn in every round; see rig.Rounds.
func (s *stage) inTurn(r *result, turn func(round int, name string, p *rig.Proxy) error) error {
	var b rig.Bed
	defer b.End()
	all := map[string]*rig.Proxy{}
	for _, name := range s.proxies() {
		p, err := s.proxyOn(&b, name, s.cores.One)
		if err != nil {
			return err
		}
		all[name] = p
	}
	return rig.Rounds(s.rounds, s.proxies(), func(round int, name string) error {
		err := turn(round, name, all[name])
		if round >= 0 && name == ours {
			s.progress.Printf("%s: round %d of %d: %s", r.Case, round+1, s.rounds, r.last())
		}
		return err
	})
}

// to returns load with its URL at addr.
func (s *stage) to(load rig.Load, addr string) *rig.Load {
	scheme := "http://"
	if s.wire == h2 {
		scheme = "https://"
	}
	load.URL, load.For, load.Cores = scheme+addr+load.URL, slice+time.Duration(load.Connections/1000)*time.Second, s.cores.Load // many take longer to be made
	if load.Streams > 0 {
		load.For += 2 * time.Second // h2load makes its connections within that time
	}
	return &load
}

// cost measures CPU time per request.
func cost(load rig.Load) measure {
	return func(s *stage, r *result) error {
		return s.inTurn(r, func(round int, name string, p *rig.Proxy) error {
			us, sent, err := p.Cost(s.ctx, s.to(load, p.Addr))
			if err == nil && round >= 0 {
				r.add(name, us)
				r.sent(name, sent)
			}
			return err
		})
	}
}

// measure measures something of a proxy with the wires of s.
type measure func(s *stage, r *result) error

// over measures with clients that speak w.
func over(w wire, m measure) measure {
	return func(s *stage, r *result) error {
		o := *s
		o.wire = w
		return m(&o, r)
	}
}

// between measures with clients and an upstream that speak h2c. nginx speaks HTTP/2 to upstreams for gRPC only.
func between(m measure) measure {
	return func(s *stage, r *result) error {
		var b rig.Bed
		defer b.End()
		addr, err := b.StartHTTP2Upstream(s.cores.Load)
		if err != nil {
			return err
		}
		o := *s
		o.wire, o.wireUp, o.upstream = h2c, h2c, addr
		o.peers = slices.DeleteFunc(slices.Clone(s.peers), func(name string) bool { return name == nginx })
		return m(&o, r)
	}
}

// count counts the instructions of a request.
func count(load rig.Load) measure {
	return func(s *stage, r *result) error { return s.count(load, r) }
}

// costOfGRPC measures CPU time per gRPC message of 1 KiB, with grpc-go on both ends. kind is that of the calls.
func costOfGRPC(kind string) measure {
	return func(s *stage, r *result) error {
		var b rig.Bed
		defer b.End()
		over := *s
		over.wire, over.wireUp, over.grpc = h2c, h2c, b.TempDir()+"/grpcload"
		if out, err := exec.CommandContext(s.ctx, "go", "build", "-C", "bench/interop", "-o", over.grpc, "./grpcload").CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		server, err := b.StartPeer(rig.Peer{Program: over.grpc, Args: []string{"serve"}, Config: "{listen}"}, "", s.cores.Load)
		if err != nil {
			return err
		}
		over.upstream = server.Addr
		return over.inTurn(r, func(round int, name string, p *rig.Proxy) error {
			us, sent, err := p.Cost(s.ctx, &rig.Load{GRPC: over.grpc, To: p.Addr, URL: kind, Connections: 8, Streams: 8, For: 2 * slice, Cores: s.cores.Load})
			if err == nil && round >= 0 {
				r.add(name, us)
				r.sent(name, sent)
			}
			return err
		})
	}
}

// latency measures what each proxy adds to the median of a single connection.
func (s *stage) latency(r *result) error {
	load := rig.Load{URL: "/small", Connections: 1}
	var direct *rig.Result
	last := -2
	return s.inTurn(r, func(round int, name string, p *rig.Proxy) (err error) {
		if round != last {
			if direct, err = s.to(load, s.upstream).Send(s.ctx); err != nil {
				return err
			}
			last = round
		}
		sent, err := s.to(load, p.Addr).Send(s.ctx)
		if err == nil && round >= 0 {
			r.add(name, float64((sent.P50-direct.P50).Nanoseconds())/1e3)
			r.sent(name, sent)
		}
		return err
	})
}

// scaling compares retryproxy on two cores with retryproxy on one. If the load has to share the two
// cores, throughput means nothing. Then the factor is computed from the CPU time per request:
// 2 x one / two.
func (s *stage) scaling(r *result) error {
	var b rig.Bed
	defer b.End()
	var p [2]*rig.Proxy
	for i, cores := range [][]int{s.cores.One, s.cores.Two} {
		var err error
		if p[i], err = s.proxyOn(&b, ours, cores); err != nil {
			return err
		}
	}
	load := s.to(rig.Load{URL: "/small", Connections: 256}, "")
	if s.cores.Beside {
		load.Cores = load.Cores[1:]
	} else {
		r.Note = "from CPU time per request, since the load shares the two cores"
	}
	for range s.rounds {
		var us, rate [2]float64
		for i := range p {
			load.URL = "http://" + p[i].Addr + "/small"
			cpu, sent, err := p[i].Cost(s.ctx, load)
			if err != nil {
				return err
			}
			us[i], rate[i] = cpu, float64(sent.Requests)
		}
		if r.add(ours, 2*us[0]/us[1]); s.cores.Beside {
			r.of(ours).All[len(r.of(ours).All)-1] = rate[1] / rate[0]
		}
		s.progress.Printf("%s: %s", r.Case, r.last())
	}
	return nil
}

// start measures the time from the start of the program to its first response.
func (s *stage) start(r *result) error {
	for range max(s.rounds, 5) {
		for _, name := range s.proxies() {
			took, err := s.startToAnswer(name)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			r.add(name, float64(took.Microseconds())/1e3)
		}
	}
	return nil
}

func (s *stage) startToAnswer(name string) (time.Duration, error) {
	var b rig.Bed
	defer b.End()
	began := time.Now()
	p, err := s.begin(&b, name, s.cores.One)
	for err == nil && time.Since(began) < 15*time.Second {
		if c, err := ask(p.Addr); err == nil {
			_ = c.Close()
			return time.Since(began), nil
		}
		time.Sleep(200 * time.Microsecond)
		err = errors.Join(p.Alive(), s.ctx.Err())
	}
	return 0, errors.Join(err, errors.New("no response"))
}

// testCase is one kind of work with its goal.
type testCase struct {
	name    string
	work    string
	unit    string
	goal    string
	measure func(s *stage, r *result) error
	met     func(r *result) bool
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

func isCounted(r *result) bool { return r.ours() > 0 }

func isNearHAProxy(r *result) bool { return r.ratio() <= 1.2 }

func atMostHAProxys(r *result) bool { return r.ratio() <= 1 }

var cases = []testCase{
	{"get", "small GET, 64 connections", "us CPU", "<= 0.90 of HAProxy and below nginx", cost(rig.Load{URL: "/small", Connections: 64}),
		func(r *result) bool { return r.ratio() <= 0.90 && r.belowNginx() }},
	{"distinct", "small GET, 64 connections, no two heads alike", "us CPU", "below HAProxy's", cost(rig.Load{URL: "/distinct", Connections: 64, Distinct: true}),
		func(r *result) bool { return r.ratio() < 1 }},
	{"latency", "small GET, 1 connection: p50 above going directly", "us", "<= HAProxy's", (*stage).latency,
		func(r *result) bool { return r.ratio() <= 1 }},
	{"post16k", "POST 16 KiB, 64 connections", "us CPU", "<= 0.75 of HAProxy", cost(rig.Load{URL: "/sink", Connections: 64, Method: "POST", BodyBytes: 16 * kib}),
		func(r *result) bool { return r.ratio() <= 0.75 }},
	{"get1m", "GET 1 MiB, 16 connections", "us CPU", "<= 0.80 of HAProxy", cost(rig.Load{URL: "/bytes/1048576", Connections: 16}),
		func(r *result) bool { return r.ratio() <= 0.80 }},
	{"put16m", "PUT 16 MiB, 4 connections", "us CPU", "<= 0.80 of HAProxy", cost(rig.Load{URL: "/sink", Connections: 4, Method: "PUT", BodyBytes: 16 * mib}),
		func(r *result) bool { return r.ratio() <= 0.80 }},
	{"h2c", "h2c, small GET, 64 connections of 8 streams", "us CPU", "<= HAProxy's", over(h2c, cost(rig.Load{URL: "/small", Connections: 64, Streams: 8})), atMostHAProxys},
	{"h2cone", "h2c, small GET, 64 connections of one stream", "us CPU", "<= HAProxy's", over(h2c, cost(rig.Load{URL: "/small", Connections: 64, Streams: 1})), atMostHAProxys},
	{"h2", "HTTP/2 over TLS, small GET, 64 connections of 8 streams", "us CPU", "<= HAProxy's", over(h2, cost(rig.Load{URL: "/small", Connections: 64, Streams: 8})), atMostHAProxys},
	{"h2get1m", "h2c, GET 1 MiB, 16 connections", "us CPU", "<= HAProxy's", over(h2c, cost(rig.Load{URL: "/bytes/1048576", Connections: 16, Streams: 1})), atMostHAProxys},
	{"h2put16m", "h2c, PUT 16 MiB, 4 connections", "us CPU", "<= HAProxy's", over(h2c, cost(rig.Load{URL: "/sink", Connections: 4, Streams: 1, Method: "PUT", BodyBytes: 16 * mib})), atMostHAProxys},
	{"h2ch2c", "h2c to h2c, small GET, 64 connections of 8 streams", "us CPU", "<= 1.2 of HAProxy", between(cost(rig.Load{URL: "/small", Connections: 64, Streams: 8})), isNearHAProxy},
	{"h2ch2cget1m", "h2c to h2c, GET 1 MiB, 16 connections", "us CPU", "<= 1.2 of HAProxy", between(cost(rig.Load{URL: "/bytes/1048576", Connections: 16, Streams: 1})), isNearHAProxy},
	{"h2ch2cput16m", "h2c to h2c, PUT 16 MiB, 4 connections", "us CPU", "<= 1.2 of HAProxy", between(cost(rig.Load{URL: "/sink", Connections: 4, Streams: 1, Method: "PUT", BodyBytes: 16 * mib})), isNearHAProxy},
	{"grpc", "gRPC calls of 1 KiB, 8 connections of 8 calls, HTTP/2 on both sides", "us CPU", "<= 1.2 of HAProxy", costOfGRPC("unary"), isNearHAProxy},
	{"grpcstream", "gRPC messages of 1 KiB on 8 connections of 8 streams, HTTP/2 on both sides", "us CPU", "<= 1.2 of HAProxy", costOfGRPC("stream"), isNearHAProxy},
	// 512 connections, so that the proxy stays as busy as HAProxy while some of them wait: HAProxy
	// retries at once, and wakeups of an idle processor are expensive.
	{"fail10", "10 % of answers 503, 512 connections", "us CPU", "<= 1.1 of HAProxy; failed at most 3 x 0.1^4", cost(rig.Load{URL: "/fail/10", Connections: 512}),
		func(r *result) bool { return r.ratio() <= 1.1 && r.failedShare() <= 3e-4 }},
	{"rest", "memory at rest, after one request", "MiB PSS", "<= 9 MiB",
		memory(func(s *stage, p *rig.Proxy) (float64, error) { n, err := s.atRest(p); return float64(n) / mib, err }),
		func(r *result) bool { return r.ours() <= 9 }},
	{"paced", "small GET, 100 requests a second on one connection", "us CPU", "<= HAProxy's", (*stage).paced, atMostHAProxys},
	{"wakeups", "voluntary context switches at rest, after one request", "a second", "<= 2", memory(wakeups),
		func(r *result) bool { return r.ours() <= 2 }},
	{"idle", "memory per idle keep-alive connection", "KiB PSS", "<= 5 KiB",
		memory(func(s *stage, p *rig.Proxy) (float64, error) {
			return s.perConnection(p, 4000, func() (net.Conn, error) { return ask(p.Addr) }, func() error { return nil })
		}),
		func(r *result) bool { return r.ours() <= 5 }},
	{"waiting", "memory per request waiting in backoff (budget and outage handling off)", "KiB PSS", "<= 12 KiB",
		memory(func(s *stage, p *rig.Proxy) (float64, error) {
			return s.perConnection(p, s.waiting, func() (net.Conn, error) { return send(p.Addr, "/busy/60") }, func() error { return s.awaitWaiting(p) })
		}, "RETRYPROXY_BUDGET_RATIO=off", "RETRYPROXY_BREAKER=off", "RETRYPROXY_CONCURRENCY_LIMIT=off", "RETRYPROXY_REQUEST_TIMEOUT=3m"),
		func(r *result) bool { return r.ours() <= 12 }},
	{"start", "start to first proxied request", "ms", "<= 30 ms", (*stage).start,
		func(r *result) bool { return r.ours() <= 30 }},
	{"cores", "small GET, 256 connections, throughput of two cores over one", "x", ">= 1.8", (*stage).scaling,
		func(r *result) bool { return r.ours() >= 1.8 }},
	{instructions, "small GET, 64 connections, under valgrind", "user instructions", "counted", count(rig.Load{URL: "/", Connections: 64}), isCounted},
	{"h2" + instructions, "h2c, small GET, 64 connections of 8 streams, under valgrind", "user instructions", "counted",
		over(h2c, count(rig.Load{URL: "/small", Connections: 64, Streams: 8})), isCounted},
	{"h2ch2c" + instructions, "h2c to h2c, the same", "user instructions", "counted", between(count(rig.Load{URL: "/small", Connections: 64, Streams: 8})), isCounted},
}
