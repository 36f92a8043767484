// Package nameserver is what a benchmark needs to be the name server of a program:
// the responses, and a way to start the program so that it asks nobody else.
package nameserver

import (
	"os"
	"path/filepath"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/retryproxy/retryproxy/bench/internal/process"
)

// Answer answers one question, for a second: ip to one for an address of version 4,
// nothing to others, and SERVFAIL to all where it fails. name is what was asked for, with its final dot.
func Answer(question []byte, ip func(name string) [4]byte, fails bool) (reply []byte, name string, err error) {
	var p dnsmessage.Parser
	h, err := p.Start(question)
	if err != nil {
		return nil, "", err
	}
	q, err := p.Question()
	if err != nil {
		return nil, "", err
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: h.ID, Response: true, RecursionAvailable: true}, Questions: []dnsmessage.Question{q}}
	switch {
	case fails:
		m.RCode = dnsmessage.RCodeServerFailure
	case q.Type == dnsmessage.TypeA:
		head := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1}
		m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AResource{A: ip(q.Name.String())}}}
	}
	reply, err = m.Pack()
	return reply, q.Name.String(), err
}

// Asking is the command line by way of which a program is started that asks the
// server at ip, port 53, and nobody else; dir keeps a file for it. Its error says why the machine cannot do that.
func Asking(ip, dir string) ([]string, error) {
	if err := process.CanMount(); err != nil {
		return nil, err
	}
	conf := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver "+ip+"\noptions timeout:1 attempts:2\n"), 0o644); err != nil {
		return nil, err
	}
	return process.Mounting("mount --bind " + conf + " /etc/resolv.conf"), nil
}
