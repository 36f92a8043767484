package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// result is the result of an attack.
type result struct {
	*attack
	sent, ended, resets   int64
	quiet, under          *rig.Timeline // how others were served before and during the attack
	before, during, after rig.Level
	looked                string // what a judge of its own looked for, and how often it was there
	found                 []string
}

// run runs the attack against a new process with default settings and those of the stage.
func (a *attack) run(ctx context.Context, o *options, upstream string) (*result, error) {
	st := &stage{connection: a.connection, spec: rig.Spec{Program: o.proxy, Upstream: "http://" + upstream}}
	defer st.End()
	if a.prepare != nil {
		if err := a.prepare(st); err != nil {
			return nil, err
		}
	}
	p, err := st.Start(ctx, st.spec)
	if err != nil {
		return nil, err
	}
	others := newOthers(st.secure)
	defer others.close()
	r := &result{attack: a}
	lasts := o.lasts
	quiet, cancel := context.WithTimeout(ctx, lasts/2)
	r.quiet = others.call(quiet, p.Addr)
	cancel()
	if st.begin != nil {
		if err := st.begin(p); err != nil {
			return nil, err
		}
	}
	if r.before, err = p.Level(); err != nil {
		return nil, err
	}
	attacked, cancel := context.WithTimeout(ctx, lasts+patience)
	defer cancel()
	t := &tally{}
	var busy sync.WaitGroup
	busy.Go(func() { a.launch(attacked, st, p.Addr, t) })
	if st.beside != nil {
		busy.Go(func() { st.beside(attacked, p) })
	}
	busy.Go(func() { // a slow machine turns attackers away later, and shows a judge less
		defer cancel()
		for began := time.Now(); attacked.Err() == nil && (time.Since(began) < lasts || a.ends && !t.turnedAway() || !st.enough()); {
			time.Sleep(10 * time.Millisecond)
		}
	})
	r.under = others.call(attacked, p.Addr)
	busy.Wait()
	if r.during, err = p.Level(); err != nil {
		return nil, fmt.Errorf("%w; it said:\n%s", err, p.Said())
	}
	r.sent, r.ended, r.resets = t.sent.Load(), t.ended.Load(), t.resets.Load()
	if st.judge != nil {
		for what, n := range st.needs {
			st.AtLeast(n, what)
		}
		r.looked = st.judge(p)
		r.found = st.All()
	}
	r.after, err = p.Settle(patience, func(l rig.Level) bool { return !l.Above(r.before, slack) })
	return r, err
}

// slack is how many goroutines and descriptors come and go.
const slack = 12

// grew returns how many bytes the process grew by.
func (r *result) grew() int64 { return max(r.during.Peak, r.after.Peak) - r.before.RSS }

// wrong returns what was not withstood.
func (r *result) wrong() []string {
	var c rig.Check
	before, first := failures(r.quiet)
	during, then := failures(r.under)
	c.That(before+during == 0, "%d requests of others failed before and %d during the attack: %q", before, during, append(first, then...))
	c.That(r.under.Total()[requests] > 0, "no request of others was served")
	c.That(r.grew() <= r.bound, "memory grew by %.1f MiB, more than %.1f MiB for %s", mibOf(r.grew()), mibOf(r.bound), r.why)
	c.That(r.sent > 0, "the attack sent nothing")
	c.That(!r.ends || r.ended+r.resets > 0, "the attacker was not turned away")
	c.That(!r.after.Above(r.before, slack), "%d goroutines and %d descriptors after it, %d and %d before", r.after.Goroutines, r.after.Descriptors, r.before.Goroutines, r.before.Descriptors)
	return append(c.All(), r.found...)
}

func mibOf(n int64) float64 { return float64(n) / mib }

func (r *result) print(w io.Writer) {
	if r.looked == "" {
		r.looked = fmt.Sprintf("%d, %d", r.ended, r.resets)
	}
	failed, _ := failures(r.under)
	quiet, under := r.quiet.Within(0.99), r.under.Within(0.99)
	fmt.Fprintf(w, "| %s | %d | %d | %s | %.1f, %.1f, %.0f | %d, %d | %.1f ms, %.1f ms, %.1f | %d, %d; %d, %d |\n",
		r.name, r.conns, r.sent, r.looked, mibOf(r.before.RSS), mibOf(r.grew()), mibOf(r.bound), r.under.Total()[requests], failed,
		ms(quiet), ms(under), float64(under)/float64(max(quiet, 1)),
		r.before.Goroutines, r.before.Descriptors, r.after.Goroutines, r.after.Descriptors)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// others are the ordinary clients.
type others struct {
	clients [2]*http.Client // by HTTP/1.1 and by HTTP/2
	scheme  string
}

// What the Timeline of the others counts.
const (
	requests = "requests"
	failed   = "failed: " // and why
)

// failures returns how many requests failed, and why, with the number of each reason.
func failures(t *rig.Timeline) (n int, why []string) {
	total := t.Total()
	for name, times := range total {
		if reason, is := strings.CutPrefix(name, failed); is {
			why = append(why, fmt.Sprintf("%s: %d", reason, times))
		}
	}
	return total.Kinds(failed), why
}

const (
	// othersOf clients use each protocol. Each pauses for othersEvery after a response.
	othersOf    = 4
	othersEvery = 2 * time.Millisecond
	// patience is how long a client waits for a response.
	patience = 30 * time.Second
)

// newOthers makes clients. If secure, they use TLS and accept any certificate.
func newOthers(secure bool) *others {
	o := &others{scheme: "http"}
	if secure {
		o.scheme = "https"
	}
	for i := range o.clients {
		t := &http.Transport{Protocols: new(http.Protocols), MaxIdleConnsPerHost: othersOf}
		t.Protocols.SetHTTP1(i == 0)
		t.Protocols.SetUnencryptedHTTP2(i == 1 && !secure)
		t.Protocols.SetHTTP2(i == 1 && secure)
		t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // it is signed by itself
		o.clients[i] = &http.Client{Transport: t, Timeout: patience}
	}
	return o
}

func (o *others) close() {
	for _, c := range o.clients {
		c.CloseIdleConnections()
	}
}

// call sends requests until ctx ends and returns their results.
func (o *others) call(ctx context.Context, addr string) *rig.Timeline {
	t := rig.NewTimeline()
	var all sync.WaitGroup
	for i := range othersOf * len(o.clients) {
		all.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				err := o.ask(i, addr)
				t.Took(time.Since(began))
				if t.Count(requests, 1); err != nil {
					t.Count(failed+err.Error(), 1)
				}
				rig.Sleep(ctx, othersEvery)
			}
		})
	}
	all.Wait()
	return t
}

// ask sends one request, over HTTP/1.1 and HTTP/2 in turn. It is not cut short by the end of the attack.
func (o *others) ask(n int, addr string) error { return o.get(o.clients[n%len(o.clients)], addr) }

// badResponse is a response that is not the one expected.
type badResponse struct {
	proto  string
	status int
	body   []byte
}

func (e *badResponse) Error() string { return fmt.Sprintf("%s: %d %.200q", e.proto, e.status, e.body) }

// kindOf is rig.KindOf, and the status for a bad response.
func kindOf(err error) string {
	if bad := (*badResponse)(nil); errors.As(err, &bad) {
		return strconv.Itoa(bad.status)
	}
	return rig.KindOf(err)
}

func (o *others) get(client *http.Client, addr string) error {
	target := "/ok?" + strconv.FormatUint(rand.Uint64(), 36)
	res, err := client.Get(o.scheme + "://" + addr + target)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return err
	case res.StatusCode != http.StatusOK || string(b) != good:
		return &badResponse{res.Proto, res.StatusCode, b}
	case asked(res) != target:
		return fmt.Errorf("%s: an answer to %q instead of %q", res.Proto, asked(res), target)
	}
	return nil
}
