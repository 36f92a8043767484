//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"

	"github.com/retryproxy/retryproxy/bench/internal/nameserver"
)

// roleDNS answers every question for an address by the one in its second
// argument, on UDP at the address in the first. Orders: good, silent, servfail,
// count. The numbers answered are questions that it left without an address.
const roleDNS = "dns"

// upstreamName is what the name server knows.
const upstreamName = "app.faults.test"

func serveDNS(args []string, orders io.Reader, out io.Writer) error {
	if len(args) != 2 {
		return errors.New("usage: ADDRESS ANSWER")
	}
	c, err := net.ListenPacket("udp", args[0])
	if err != nil {
		return err
	}
	ip := net.ParseIP(args[1]).To4()
	if ip == nil {
		return fmt.Errorf("%q is no address of version 4", args[1])
	}
	var mode atomic.Value
	mode.Store("good")
	var unanswered atomic.Int64
	go func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			if mode.Load() != "good" {
				unanswered.Add(1)
			}
			if mode.Load() == "silent" {
				continue
			}
			if reply, _, err := nameserver.Answer(buf[:n], func(string) [4]byte { return [4]byte(ip) }, mode.Load() == "servfail"); err == nil {
				_, _ = c.WriteTo(reply, from)
			}
		}
	}()
	fmt.Fprintln(out, "open")
	return obey(orders, out, func(what, _ string) (int64, error) {
		if what != "count" {
			mode.Store(what)
		}
		return unanswered.Load(), nil
	})
}

func dnsSilent() fault { return dnsGone("DNS gone", "the name server answers nothing", "silent") }

func dnsRefuses() fault {
	return dnsGone("DNS failing", "the name server answers SERVFAIL", "servfail")
}

// dnsGone is a name server that no longer helps, while the upstream closes every connection.
func dnsGone(name, how, mode string) fault {
	var dns *child
	set := func(mode, conduct string) func(*stage) error {
		return func(st *stage) error {
			if _, err := dns.order(mode); err != nil {
				return err
			}
			return orderUpstream("mode " + conduct)(st)
		}
	}
	f := fault{name: name, how: how + "; answers hold for 1 s, and the upstream ends every connection", begin: set(mode, closing), end: set("good", wellBehaved)}
	f.prepare = func(st *stage) (err error) {
		dns, err = startDNS(st)
		return err
	}
	f.felt = func(*stage) (felt, error) {
		n, err := dns.order("count")
		return felt{n, "questions without an address"}, err
	}
	return f
}

// startDNS starts a name server that the proxy will ask for its upstream.
func startDNS(st *stage) (*child, error) {
	ip, port, err := net.SplitHostPort(st.upAddr)
	if err != nil {
		return nil, err
	}
	if st.proxyBy, err = nameserver.Asking(ip, st.dir); err != nil {
		return nil, impossible{err.Error()}
	}
	dns, err := startRole(roleDNS, nil, net.JoinHostPort(ip, "53"), ip)
	if err != nil {
		return nil, err
	}
	st.later(dns.Kill)
	st.target = "http://" + net.JoinHostPort(upstreamName, port)
	return dns, nil
}
