// Package engine parses the address of the engine on which a fleet shares its state: a
// Redis or Valkey server, servers behind sentinels, or a cluster.
//
// Call Parse. The package connects to nothing and does not import the client library, so
// that a program that only checks settings does not contain it.
package engine

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Kind is the topology of an engine.
type Kind uint8

// The kinds of Engine.
const (
	Single   Kind = iota // one server, or one address that leads to the right one
	Sentinel             // sentinels know which server it is
	Cluster              // the keys are spread over several servers
)

// Engine is the address of the engine and the user. The zero value is none.
type Engine struct {
	Kind    Kind
	TLS     bool
	Network string   // "tcp" or "unix"
	Addrs   []string // host:port each, or one path of a socket; those of the sentinels or nodes, if there are any
	Master  string   // for Sentinel: the server's name at the sentinels
	User    string   // "" is the engine's default user
	DB      int      // 0 to 15 unless the server has more; always 0 in a cluster

	Scope        string // processes with the same scope share; "default" unless it is given
	PasswordFile string // file with the password, read for every connection; "" for none
	CA           string // with TLS: PEM file of the authorities for the server's certificate; "" for the system's
	Cert         string // with TLS: PEM file of the client certificate and its key; "" for none

	text string
}

const (
	defaultPort  = "6379"
	sentinelPort = "26379"
	maxAddrs     = 64
	maxDB        = 1 << 16
	defaultScope = "default"
)

// Parse parses
//
//	redis://[user@]host[:port][/db]                 one server; rediss:// with TLS
//	redis+sentinel://[user@]host[:port],.../master[/db]   sentinels; rediss+sentinel:// with TLS
//	redis+cluster://[user@]host[:port],...          a cluster; rediss+cluster:// with TLS
//	unix:/path                                      one server on this machine
//
// each with options in the form of a query: scope, password_file, and with TLS ca and cert.
//
// A password is an error: it would be visible wherever the setting is.
func Parse(text string) (Engine, error) {
	e := Engine{text: text, Network: "unix", Scope: defaultScope}
	address, query, _ := strings.Cut(text, "?")
	if err := e.options(query, strings.HasPrefix(address, "rediss")); err != nil {
		return Engine{}, err
	}
	if path, local := strings.CutPrefix(address, "unix:"); local {
		if !strings.HasPrefix(path, "/") {
			return Engine{}, errors.New("a socket's path must begin with /")
		}
		e.Addrs = []string{path}
		return e, nil
	}
	scheme, rest, found := strings.Cut(address, "://")
	if !found || !e.scheme(scheme) {
		return Engine{}, errors.New("unknown scheme")
	}
	e.Network = "tcp"
	authority, path, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user, err := parseUser(authority[:at])
		if err != nil {
			return Engine{}, err
		}
		e.User, authority = user, authority[at+1:]
	}
	if err := e.hosts(authority); err != nil {
		return Engine{}, err
	}
	if err := e.path(path); err != nil {
		return Engine{}, err
	}
	return e, nil
}

// options parses what follows the question mark.
func (e *Engine) options(query string, secure bool) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("an option has a bad %-escape")
	}
	fields := map[string]*string{"scope": &e.Scope, "password_file": &e.PasswordFile, "ca": &e.CA, "cert": &e.Cert}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name]
		switch field := fields[name]; {
		case name == "password":
			return errPassword
		case field == nil && value[0] == "":
			return errOption
		case field == nil:
			return fmt.Errorf("unknown option %q; the options are scope, password_file, ca and cert", name)
		case len(value) > 1 || value[0] == "":
			return fmt.Errorf("the option %s needs one value", name)
		case !secure && (name == "ca" || name == "cert"):
			return fmt.Errorf("the option %s needs TLS: rediss://", name)
		default:
			*field = value[0]
		}
	}
	return nil
}

// errOption does not repeat the name, which may be a password without a name.
var errOption = errors.New("unknown option; the options are scope, password_file, ca and cert")

var errPassword = errors.New("a password would be visible here; put it into a file and add ?password_file=FILE")

func (e *Engine) scheme(s string) bool {
	s, kind, _ := strings.Cut(s, "+")
	e.TLS = s == "rediss"
	switch kind {
	case "":
	case "sentinel":
		e.Kind = Sentinel
	case "cluster":
		e.Kind = Cluster
	default:
		return false
	}
	return e.TLS || s == "redis"
}

func parseUser(s string) (string, error) {
	name, _, hasPassword := strings.Cut(s, ":")
	if hasPassword {
		return "", errPassword
	}
	name, err := url.PathUnescape(name)
	if err != nil {
		return "", errors.New("the user's name has a bad %-escape")
	}
	return name, nil
}

func (e *Engine) hosts(list string) error {
	all := strings.Split(list, ",")
	if len(all) > maxAddrs {
		return fmt.Errorf("more than %d addresses", maxAddrs)
	}
	if e.Kind == Single && len(all) > 1 {
		return errors.New("several addresses need +sentinel or +cluster, as in redis+cluster://a,b")
	}
	port := defaultPort
	if e.Kind == Sentinel {
		port = sentinelPort
	}
	for _, a := range all {
		address, err := hostPort(a, port)
		if err != nil {
			return err
		}
		e.Addrs = append(e.Addrs, address)
	}
	return nil
}

// hostPort adds the port if there is none.
func hostPort(s, port string) (string, error) {
	u, err := url.Parse("//" + s)
	if err != nil || u.Host != s || u.Hostname() == "" || strings.ContainsAny(s, ";!$&'()*+=\"<>") { // RFC 3986 allows these, no host has them
		return "", fmt.Errorf("%q is not host[:port]", s)
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return "", fmt.Errorf("the port of %q is not a number from 1 to 65535", s)
		}
		port = p
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

// path parses the part after the addresses.
func (e *Engine) path(path string) error {
	if e.Kind == Sentinel {
		e.Master, path, _ = strings.Cut(path, "/")
		if e.Master == "" {
			return errors.New("the server's name at the sentinels is missing: redis+sentinel://host/NAME")
		}
	}
	if path == "" {
		return nil
	}
	if e.Kind == Cluster {
		return errors.New("a cluster has only one database; leave out what follows the addresses")
	}
	db, err := strconv.ParseUint(path, 10, 31)
	if err != nil || db > maxDB {
		return fmt.Errorf("the database %q is not a number", path)
	}
	e.DB = int(db)
	return nil
}

// Set reports whether e is an engine, and not the zero value.
func (e Engine) Set() bool { return e.text != "" }

// String returns the text that was parsed; "" for the zero value.
func (e Engine) String() string { return e.text }

// Name returns the address without user and options, for logs.
func (e Engine) Name() string {
	text, _, _ := strings.Cut(e.text, "?")
	scheme, rest, found := strings.Cut(text, "://")
	if at := strings.LastIndexByte(rest, '@'); found && at >= 0 {
		return scheme + "://" + rest[at+1:]
	}
	return text
}

// UnmarshalText parses text with Parse.
func (e *Engine) UnmarshalText(text []byte) error {
	read, err := Parse(string(text))
	if err == nil {
		*e = read
	}
	return err
}

// MarshalText returns the text that was parsed.
func (e Engine) MarshalText() ([]byte, error) { return []byte(e.text), nil }
