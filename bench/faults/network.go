//go:build linux

package main

import (
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
)

// roleHold does nothing; the network namespace that it is started in lasts as
// long as it does, and nothing of it is left afterwards.
const roleHold = "hold"

func holdNamespace(_ []string, orders io.Reader, out io.Writer) error {
	fmt.Fprintln(out, "open")
	_, err := io.Copy(io.Discard, orders)
	return err
}

// Addresses of the proxy and the upstream, in namespaces that nobody else sees.
const (
	wireName   = "wire"
	proxyIP    = "10.213.0.1"
	upstreamIP = "10.213.0.2"
)

// network is a namespace for the proxy, one for its upstream, and a wire between them.
type network struct {
	*wire
	proxy, upstream *child // that hold the namespaces
}

// inside is the command by way of which a program is started in a namespace.
func inside(c *child) []string {
	return []string{"nsenter", "--target", strconv.Itoa(c.PID()), "--net"}
}

func runIn(c *child, program string, args ...string) error {
	line := append(append(inside(c), program), args...)
	if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, out)
	}
	return nil
}

// newNetwork makes one for a stage and has its processes start in it.
func newNetwork(st *stage) (*network, error) {
	if out, err := exec.Command("unshare", "--net", "true").CombinedOutput(); err != nil {
		return nil, impossible{"no network namespace: " + strings.TrimSpace(string(out))}
	}
	n := &network{}
	for _, c := range []**child{&n.proxy, &n.upstream} {
		var err error
		if *c, err = startRole(roleHold, []string{"unshare", "--net"}); err != nil {
			return nil, err
		}
		st.later((*c).Kill)
	}
	var err error
	if n.wire, err = joinBy(wireName, [2]int{n.proxy.PID(), n.upstream.PID()}); err != nil {
		return nil, err
	}
	st.later(n.close)
	for _, end := range []struct {
		c        *child
		own, far string
	}{{n.proxy, proxyIP, upstreamIP}, {n.upstream, upstreamIP, proxyIP}} {
		for _, args := range []string{"address add " + end.own + " peer " + end.far + " dev " + wireName, "link set " + wireName + " mtu 1400 up", "link set lo up"} {
			if err := runIn(end.c, "ip", strings.Fields(args)...); err != nil {
				return nil, err
			}
		}
	}
	st.sockets, st.proxyBy, st.upBy = true, inside(n.proxy), inside(n.upstream)
	st.upAddr = upstreamIP + ":8080"
	st.target = "http://" + st.upAddr
	return n, nil
}

// drop has the upstream's host neither take nor send any packet, or again all.
func (n *network) drop(on bool) error {
	if !on {
		return runIn(n.upstream, "iptables", "--flush")
	}
	for _, chain := range []string{"INPUT", "OUTPUT"} {
		if err := runIn(n.upstream, "iptables", "--append", chain, "--jump", "DROP"); err != nil {
			return err
		}
	}
	return nil
}

// networkFaults are those between the proxy and its upstream.
func networkFaults() []fault {
	return []fault{
		stormy("loss", "5 % of the packets, each way", weather{loss: 0.05}, "packets lost"),
		stormy("delay", "100 ms, each way", weather{delay: 100e6}, "packets delayed"),
		stormy("reordering", fmt.Sprintf("a quarter of the packets %v late, each way", overtakenBy), weather{late: 0.25}, "packets late"),
		stormy("duplication", "a quarter of the packets twice, each way", weather{twice: 0.25}, "packets twice"),
		partition(), halfOpen(),
	}
}

// onNetwork is a fault that is played on a network of its own.
func onNetwork(f fault, begin, end func(st *stage, n *network) error) fault {
	var n *network
	f.prepare = func(st *stage) (err error) { n, err = newNetwork(st); return err }
	f.begin = func(st *stage) error { return begin(st, n) }
	f.end = func(st *stage) error { return end(st, n) }
	if f.felt == nil {
		what := f.name
		f.felt = func(*stage) (felt, error) { return felt{n.met.Load(), what}, nil }
	}
	return f
}

// stormy is a wire in some weather.
func stormy(name, how string, w weather, what string) fault {
	set := func(w weather) func(*stage, *network) error {
		return func(_ *stage, n *network) error { n.weather.Store(&w); return nil }
	}
	f := onNetwork(fault{name: what}, set(w), set(weather{}))
	f.name, f.how = "network: "+name, how
	return f
}

func partition() fault {
	return onNetwork(fault{name: "network: partition", how: "iptables drops all packets at the upstream's host", felt: failedAttempts, expects: ambiguous},
		func(_ *stage, n *network) error { return n.drop(true) },
		func(_ *stage, n *network) error { return n.drop(false) })
}

// halfOpen: the host goes without a sign, and comes back knowing nothing of its connections.
func halfOpen() fault {
	return onNetwork(fault{name: "network: half-open", how: "iptables drops all packets at the upstream's host, then its process is killed; a new one, then no iptables", felt: failedAttempts, expects: ambiguous},
		func(st *stage, n *network) error {
			if err := n.drop(true); err != nil {
				return err
			}
			return killUpstream(st)
		},
		func(st *stage, n *network) error {
			if err := st.startUpstream(); err != nil {
				return err
			}
			return n.drop(false)
		})
}
