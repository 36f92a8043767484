package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
)

// stage is what one attack is played on, and what its own judge needs.
type stage struct {
	upstream string   // where the proxy sends requests
	env      []string // settings of the proxy, besides the usual ones
	admin    string   // where the proxy's admin listener is, if elsewhere than usual
	secure   bool     // clients come over TLS
	by       []string // the command line by way of which it is started

	strike func(s *strike) error
	begin  func(p *proxy) error                         // just before the attack; nil: nothing
	beside func(ctx context.Context, p *proxy)          // during it, until ctx ends; nil: nothing
	judge  func(p *proxy) (told string, wrong []string) // after it; nil: there is nothing but what every attack is judged by

	undo []func()
}

// later has something done when all is over, the last first.
func (st *stage) later(do func()) { st.undo = append(st.undo, do) }

func (st *stage) end() {
	for _, do := range slices.Backward(st.undo) {
		do()
	}
}

// tempDir is removed at the end.
func (st *stage) tempDir() (string, error) {
	dir, err := os.MkdirTemp("", "attacks")
	if err == nil {
		st.later(func() { _ = os.RemoveAll(dir) })
	}
	return dir, err
}

// listen gives each connection that comes to an address to take, in a goroutine of its own,
// and closes it then; until all is over.
func (st *stage) listen(addr string, take func(nc net.Conn)) (at string, err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", err
	}
	st.later(func() { _ = l.Close() })
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer nc.Close()
				take(nc)
			}()
		}
	}()
	return l.Addr().String(), nil
}

// mostFound bounds what is told of one attack.
const mostFound = 10

// findings is what must not be, and was. Safe for concurrent use.
type findings struct {
	mu    sync.Mutex // guards what follows
	n     int
	first []string
}

func (f *findings) add(format string, a ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n++; f.n <= mostFound {
		f.first = append(f.first, fmt.Sprintf(format, a...))
	}
}

// all are the first ones.
func (f *findings) all() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.first
}

// atLeast: a judge that saw too little of what it looks for cannot say that all is well.
func (f *findings) atLeast(n int64, got int64, what string) {
	if got < n {
		f.add("only %d %s: nothing can be said", got, what)
	}
}
