package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// slotAttackers is how many connections occupy client slots at once. Whoever is turned away comes again.
const slotAttackers = 3000

// peerConnections is the number of connections that nginx and HAProxy are configured for.
const peerConnections = "1500"

// occupation is a way to occupy the slots of a proxy.
type occupation struct {
	name       string
	conns      int
	limit      int64 // bytes of the cgroup
	secure     bool  // clients use TLS
	http2      bool  // attackers use HTTP/2
	honest     bool  // these are no attackers: none may fail, except by a 503
	connection func(*attacker) error
}

// perAttacker is how often a slow attacker sends a byte.
const perAttacker = time.Second

var (
	postHead = "POST /ok HTTP/1.1\r\nHost: bench.test\r\nContent-Length: 1000000\r\n\r\n"

	occupations = []occupation{
		{"silent", slotAttackers, 64 * mib, false, false, false, again(func(s *attacker) error { return s.hold(s.addr, "") })},
		{"slow headers", slotAttackers, 64 * mib, false, false, false, again(drip("GET /ok HTTP/1.1\r\nX-A: ", "a", perAttacker))},
		{"slow body", slotAttackers, 64 * mib, false, false, false, again(drip(postHead, "a", perAttacker))},
		{"slow reading", slotAttackers, 64 * mib, false, false, false, slowReader},
		{"half-open TLS", slotAttackers, 64 * mib, true, false, false, again(func(s *attacker) error { return s.hold(s.addr, halfHello) })},
		{"HTTP/2, idle streams", slotAttackers, 64 * mib, false, true, false, script{pause: comeAgain, begin: func(f *frames) {
			for range 10 {
				f.begin(f.block("POST", "/ok", "content-length", "1000"), false)
			}
		}, sends: 10}.run},
		{"honest uploads of 4 KiB/s", 2000, 128 * mib, false, false, true, honestUpload},
	}
)

// halfHello is the begin of a TLS record that says that 512 bytes follow.
const halfHello = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"

// again waits after connection, so that coming back is no attack on the cores.
func again(connection func(*attacker) error) func(*attacker) error {
	return func(s *attacker) error {
		err := connection(s)
		rig.Sleep(s, comeAgain)
		return err
	}
}

// honestUpload sends 120 KiB at 4 KiB/s and reads its response. sent counts those that got a 200, resets those that
// got a 503 and come again after the second that it asks for.
func honestUpload(s *attacker) error {
	const rate, seconds = 4 * kib, 30
	nc, err := s.dial(s.addr)
	if err != nil {
		return err
	}
	defer nc.Close()
	status := make(chan string, 1)
	go func() {
		var b [12]byte
		_, _ = io.ReadFull(nc, b[:])
		status <- strings.TrimPrefix(string(b[:]), "HTTP/1.1 ")
	}()
	if _, err = fmt.Fprintf(nc, "POST /ok HTTP/1.1\r\nHost: bench.test\r\nContent-Length: %d\r\n\r\n", rate*seconds); err != nil {
		return err
	}
	for range seconds {
		if _, err = nc.Write(make([]byte, rate)); err != nil {
			break
		}
		select {
		case got := <-status:
			if got == "503" {
				s.resets.Add(1)
				rig.Sleep(s, comeAgain)
				return nil
			}
			return fmt.Errorf("an early response: %q", got)
		case <-s.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
	select {
	case got := <-status:
		if got != "200" {
			return fmt.Errorf("a response: %q", got)
		}
		s.sent.Add(1)
	case <-s.Done():
	}
	return nil
}

// slotPeers are configured as their users do, for peerConnections. nginx speaks HTTP/2 without TLS on an address of its
// own only.
var slotPeers = map[string]rig.Peer{
	"nginx": {Program: "nginx", Args: []string{"-c"}, Config: `worker_processes 1; daemon off; user root; pid {dir}/pid; error_log {dir}/errors crit; worker_rlimit_nofile 20000;
events { worker_connections ` + peerConnections + `; }
http {
  access_log off; client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
  upstream app { server {upstream}; keepalive 64; }
  server { listen {listen} SECURE; HTTP2
    location / { proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; } }
}
`},
	"haproxy": {Program: "haproxy", Args: []string{"-db", "-q", "-f"}, Config: `global
  maxconn ` + peerConnections + `
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 60s
  timeout http-request 10s
frontend in
  bind {listen} SECURE
  default_backend app
backend app
  server app {upstream}
`},
}

// occupied is a proxy under an occupation.
type occupied struct {
	*rig.Proxy
	attacked string // the address for the attackers
}

// startFor starts a proxy in g. name is "retryproxy" or one of slotPeers.
func (o *occupation) startFor(ctx context.Context, b *rig.Bed, g *rig.Group, name, program, upstream string) (*occupied, error) {
	certificate := b.TempDir() + "/both.pem"
	if err := rig.WriteCertificate(certificate, net.IPv4(127, 0, 0, 1), time.Now().Add(time.Hour)); err != nil {
		return nil, err
	}
	peer, is := slotPeers[name]
	if !is {
		spec := rig.Spec{Program: program, Upstream: "http://" + upstream, By: g.By()}
		if o.secure {
			spec.Env = append(spec.Env, "RETRYPROXY_TLS_CERT="+certificate)
		}
		p, err := b.Start(ctx, spec)
		if err != nil {
			return nil, err
		}
		return &occupied{p, p.Addr}, nil
	}
	by := append(g.By(), peer.Program)
	peer.Program, peer.Args = by[0], append(slices.Clone(by[1:]), peer.Args...)
	peer.Listen = rig.OwnAddresses(1)[0]
	attacked, secure, http2 := peer.Listen, "", ""
	switch {
	case o.secure && name == "nginx":
		secure, http2 = "ssl", "ssl_certificate "+certificate+"; ssl_certificate_key "+certificate+";"
	case o.secure:
		secure = "ssl crt " + certificate
	case o.http2 && name == "nginx":
		attacked = rig.OwnAddresses(1)[0]
		http2 = "listen " + attacked + " http2;"
	}
	peer.Config = strings.NewReplacer("SECURE", secure, "HTTP2", http2).Replace(peer.Config)
	p, err := b.StartPeer(peer, upstream, nil)
	if err != nil {
		return nil, err
	}
	return &occupied{p, attacked}, nil
}

// occupationResult is a row of the table of occupations.
type occupationResult struct {
	others *rig.Timeline // the bystanders
	tally
	peak, kills int64
	evicted     map[string]float64
}

// run occupies a proxy for the given time while bystanders come.
func (o *occupation) run(ctx context.Context, name, program, upstream string, lasts time.Duration) (*occupationResult, error) {
	b := &rig.Bed{}
	defer b.End()
	g, err := b.NewGroup(fmt.Sprintf("slots-%d", os.Getpid()), o.limit)
	if err != nil {
		return nil, err
	}
	p, err := o.startFor(ctx, b, g, name, program, upstream)
	if err != nil {
		return nil, err
	}
	attackers, err := b.StartRole(attackersRole, nil, nil, o.name)
	if err != nil {
		return nil, err
	}
	r := &occupationResult{others: rig.NewTimeline()}
	attacked, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	var busy sync.WaitGroup
	var attack error
	busy.Go(func() {
		var answer string
		if answer, attack = attackers.Ask(p.attacked+" "+lasts.String(), lasts+time.Minute); attack == nil {
			attack = r.tally.parse(answer)
		}
	})
	others := newOthers(o.secure)
	rig.Sleep(attacked, lasts/4) // until the attackers are there
	for attacked.Err() == nil {
		busy.Go(func() { r.bystander(ctx, others, p.Addr) })
		rig.Sleep(attacked, bystanderEvery)
	}
	if busy.Wait(); attack != nil {
		return nil, attack
	}
	r.peak, _ = g.Peak()
	if r.kills, err = g.Kills(); err != nil {
		return nil, err
	}
	if name == ours {
		m, err := p.Scrape()
		if err != nil {
			return nil, fmt.Errorf("%w; it said:\n%s", err, p.Said())
		}
		r.evicted = m.By("clients_evicted_total", "state")
	}
	return r, nil
}

// attackersRole is the role of a process that occupies slots. The bystanders are in another one:
// what 3000 attackers have to wait for in their own process is no property of a proxy.
const attackersRole = "attackers"

func init() {
	rig.Role(attackersRole, func(args []string) (func(string) (string, error), error) {
		i := slices.IndexFunc(occupations, func(o occupation) bool { return len(args) == 1 && o.name == args[0] })
		if i < 0 {
			return nil, fmt.Errorf("no occupation %q", args)
		}
		return occupations[i].attack, nil
	})
}

// attack occupies a proxy as order says, by its address and how long, and returns the tally.
func (o *occupation) attack(order string) (string, error) {
	addr, duration, _ := strings.Cut(order, " ")
	lasts, err := time.ParseDuration(duration)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), lasts)
	defer cancel()
	var t tally
	a := &attack{conns: o.conns}
	a.launch(ctx, &stage{connection: o.connection}, addr, &t)
	return t.String(), nil
}

// bystander sends one request over a new HTTP/1.1 connection.
func (r *occupationResult) bystander(ctx context.Context, others *others, addr string) {
	t := others.clients[0].Transport.(*http.Transport).Clone()
	t.DisableKeepAlives = true
	began := time.Now()
	err := others.get(&http.Client{Transport: t, Timeout: 10 * time.Second}, addr)
	took := time.Since(began)
	if ctx.Err() != nil {
		return
	}
	r.others.Took(took)
	if r.others.Count(requests, 1); err != nil {
		r.others.Count(failed+kindOf(err), 1)
	} else if took > servedWithin {
		r.others.Count(late, 1)
	}
}

const ours = "retryproxy"

// occupy prints the table of occupations. It returns rig.ErrFound if retryproxy did not withstand one.
func occupy(ctx context.Context, o *options, only string, upstream string, stdout, stderr io.Writer) error {
	var found error
	fmt.Fprintf(stdout, "\n| clients | proxy | others: requests, failed, later than %v | their p50, p99 | attackers turned away | peak of memory (MiB) |\n|---|---|---|---|---|---|\n", servedWithin)
	for i := range occupations {
		oc := &occupations[i]
		if !strings.Contains(oc.name, only) {
			continue
		}
		for _, name := range append(slices.Clone(o.peers), ours) {
			r, err := oc.run(ctx, name, o.proxy, upstream, o.lasts)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", oc.name, name, err)
			}
			n, why := failures(r.others)
			total := r.others.Total()
			fmt.Fprintf(stdout, "| %d %s | %s | %d, %d, %d | %.0f ms, %.0f ms | %d | %.0f of %d |\n", oc.conns, oc.name, name, total[requests], n, total[late],
				ms(r.others.Within(0.5)), ms(r.others.Within(0.99)), r.ended.Load()+r.resets.Load(), mibOf(r.peak), oc.limit/mib)
			fmt.Fprintf(stderr, "attacks: %s: %s: failed %q; sent %d, ended %d, refused %d, evicted %v\n", oc.name, name, why, r.sent.Load(), r.ended.Load(), r.resets.Load(), r.evicted)
			if name == ours && (n > 0 || total[late]*100 > total[requests]*mostLate || r.kills > 0) {
				fmt.Fprintf(stderr, "attacks: %s: others were not served within %v\n", oc.name, servedWithin)
				found = rig.ErrFound
			}
		}
	}
	return found
}
