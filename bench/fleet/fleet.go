package main

import (
	"errors"
	"fmt"
	"time"

	rig "github.com/retryproxy/retryproxy/bench/internal/oldrig"
)

// fleet are processes of retryproxy in front of one upstream.
type fleet struct{ all []*rig.Process }

// outbound says that all call the same upstream, though it is on loopback.
const outbound = "RETRYPROXY_POSITION=outbound"

// startFleet starts o.proxies of them with default settings and these.
func startFleet(o *options, up *upstream, settings ...string) (*fleet, error) {
	all, err := rig.StartMany(&rig.Spec{Upstream: up.addr, Program: o.proxy, Env: append(settings, outbound)}, o.proxies)
	if err != nil {
		return nil, err
	}
	return &fleet{all}, nil
}

func (f *fleet) end() { rig.EndAll(f.all) }

// addrs are where clients connect.
func (f *fleet) addrs() []string {
	var addrs []string
	for _, p := range f.all {
		addrs = append(addrs, p.Addr)
	}
	return addrs
}

// cpu is the time that all have run so far.
func (f *fleet) cpu() (time.Duration, error) {
	var sum time.Duration
	for _, p := range f.all {
		d, err := p.CPU()
		if err != nil {
			return 0, errors.Join(err, p.Alive())
		}
		sum += d
	}
	return sum, nil
}

// alive names one that has ended.
func (f *fleet) alive() error {
	for i, p := range f.all {
		if err := p.Alive(); err != nil {
			return fmt.Errorf("process %d: %w", i, err)
		}
	}
	return nil
}
