// Command attacks attacks retryproxy as a client can: floods of HTTP/2 frames, streams that are opened
// and reset, endless headers, windows that never open, and the same over HTTP/1.1. Each attack has its
// own proxy process, which also serves ordinary clients. Further attackers want the proxy to connect
// elsewhere, to keep probes from its admin listener, or to overlook a request within another. Each of
// these has its own judge.
//
// An attack is withstood if no request of another client fails, memory stays below the attack's bound
// (computed from the limits, whatever the duration), the proxy turns the attacker away where it must, and
// goroutines and descriptors are released afterwards. How much longer the other clients wait depends on
// the machine, so it is printed but not judged.
//
// Linux only, because it reads /proc. All traffic is on loopback.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

func main() { rig.Main("attacks", run) }

// leastForMemory is the shortest duration of an attack on the memory. During the first seconds the
// attackers' connecting takes the cores, and the wait of a bystander means nothing.
const leastForMemory = 10 * time.Second

// abreast returns how many attacks run at a time. Short ones mostly wait for processes to start and to settle.
// The others' waiting times are worth reading only if an attack is alone.
func abreast(lasts time.Duration) int {
	if lasts < leastForMemory {
		return 3
	}
	return 1
}

// attacks returns the attacks that the time is long enough for.
func attacks(lasts time.Duration) []attack {
	all := slices.Concat(http2Attacks, http1Attacks, prematureAttacks, ssrfAttacks, adminAttacks, smugglingAttacks)
	if lasts >= leastForMemory {
		all = append(all, memoryAttacks()...)
	}
	return all
}

// options are the flags.
type options struct {
	proxy string
	lasts time.Duration
	peers []string
}

// run runs the chosen attacks. It returns rig.ErrFound if one was not withstood.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, only := &options{}, ""
	f := rig.NewFlags("attacks", stderr, &o.proxy)
	rig.Number(f, &o.lasts, "for", 10*time.Second, 100*time.Millisecond, time.Hour, "how long each attack lasts")
	slots := f.Bool("slots", false, "instead of attacks, occupy the client slots of retryproxy and its peers and compare how others are served")
	f.Some(&o.peers, "peers", "nginx,haproxy", []string{"nginx", "haproxy"}, "the peers for --slots; none if empty")
	f.StringVar(&only, "only", "", "only attacks whose name has this in it")
	var chosen []attack
	f.Check(func(c *rig.Check) {
		chosen = slices.DeleteFunc(attacks(o.lasts), func(a attack) bool { return !strings.Contains(a.name, only) })
		if *slots {
			c.Installed("nginx", "haproxy")
			return
		}
		c.That(len(chosen) > 0, "none has %q in its name", only)
	})
	if err := f.Parse(args); err != nil {
		return err
	}
	bed := &rig.Bed{}
	defer bed.End()
	worker, err := bed.StartRole(upstreamRole, nil, nil)
	if err != nil {
		return err
	}
	upstream, err := worker.Order("")
	if err != nil {
		return err
	}
	if *slots {
		return occupy(ctx, o, only, upstream, stdout, stderr)
	}
	results, errs := make([]*result, len(chosen)), make([]error, len(chosen))
	rig.Parallel(abreast(o.lasts), len(chosen), func(i int) {
		if errs[i] = ctx.Err(); errs[i] == nil {
			results[i], errs[i] = chosen[i].run(ctx, o, upstream)
		}
		fmt.Fprintf(stderr, "attacks: %s: done\n", chosen[i].name)
	})
	var found error
	title := ""
	for i, a := range chosen {
		if now := a.title(); now != title {
			title = now
			fmt.Fprint(stdout, title)
		}
		r, err := results[i], cmp.Or(errs[i], ctx.Err())
		if errors.As(err, new(rig.Impossible)) {
			fmt.Fprintf(stderr, "attacks: NOT RUN: %s: %v\n", a.name, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		r.print(stdout)
		for _, wrong := range r.wrong() {
			fmt.Fprintf(stderr, "attacks: %s: %s\n", a.name, wrong)
			found = rig.ErrFound
		}
	}
	return found
}

// title returns the head of the attack's table.
func (a *attack) title() string {
	met := "connections ended, streams refused"
	if a.prepare != nil {
		met = "looked for"
	}
	return fmt.Sprintf("\n| attack | connections | sent | %s | memory: before, grew by, bound (MiB) | others: requests, failed | their p99: before, during, ratio | goroutines, descriptors: before, after |\n|---|---|---|---|---|---|---|---|\n", met)
}

// upstreamRole is the role of the process of the usual upstream. Its answer to an order is its address. What others
// wait for in a process that writes or reads attacks is no property of the proxy.
const upstreamRole = "attacks upstream"

func init() {
	rig.Role(upstreamRole, func([]string) (func(string) (string, error), error) {
		addr := new(rig.Bed).Serve(echoing(usual()))
		return func(string) (string, error) { return addr, nil }, nil
	})
}

// good is the body that other clients expect.
var good = strings.Repeat("good", 256)

// askedField is a response header with the target of the request.
const askedField = "X-Asked"

// echoing adds askedField to the responses of h.
func echoing(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(askedField, r.RequestURI)
		h.ServeHTTP(w, r)
	})
}

// usual is the upstream, unless an attack has its own.
func usual() *http.ServeMux {
	m := http.NewServeMux()
	m.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, good)
	})
	m.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(50 * time.Millisecond):
			_, _ = io.WriteString(w, good)
		}
	})
	for path, size := range map[string]int{"/medium": mib, "/large": 16 * mib} { // a large one is more than sockets take
		body := strings.Repeat(good, size/len(good)) // one for all responses
		m.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
	}
	m.HandleFunc("/deaf", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	m.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { // ?STATUS&LOCATION
		status, to, _ := strings.Cut(r.URL.RawQuery, "&")
		n, _ := strconv.Atoi(status)
		w.Header()["Location"] = []string{to}
		w.WriteHeader(max(n, 200))
	})
	return m
}
