package upstream

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"unicode"
)

// DialKind says why no connection could be had. It is a closed set, meant for
// a metric label.
type DialKind uint8

// The kinds of dial errors.
const (
	KindOther         DialKind = iota // none of those below, e.g. no permission on a unix socket
	KindRefused                       // nobody listens, or not for us: reset (even just after the connect), no socket file, a unix socket's queue is full
	KindTimeout                       // DialTimeout or the context's deadline passed while connecting or in the TLS handshake
	KindDNS                           // the name could not be resolved, or not in time
	KindUnreachable                   // no route to the host or network, or no local address to reach it from
	KindTLS                           // connected, but the TLS handshake failed: certificate, name, protocol, or cut off
	KindCanceled                      // the context was canceled; says nothing about the upstream
	KindNoDescriptors                 // this process or machine has no file descriptor left; says nothing about the upstream

	NumDialKinds = iota // number of kinds: valid kinds are in [0, NumDialKinds)
)

var kindLabels = [NumDialKinds]string{
	KindOther:         "other",
	KindRefused:       "refused",
	KindTimeout:       "timeout",
	KindDNS:           "dns",
	KindUnreachable:   "unreachable",
	KindTLS:           "tls",
	KindCanceled:      "canceled",
	KindNoDescriptors: "no_descriptors",
}

// String gives the metric label: lower case, words joined by underscores. A
// value outside the set reads "other".
func (k DialKind) String() string {
	if int(k) >= len(kindLabels) {
		return kindLabels[KindOther]
	}
	return kindLabels[k]
}

// DialError is the error of every failed dial. Whoever gets it knows that no
// byte of a request was sent. It is immutable.
type DialError struct {
	// Kind is of the address tried last.
	Kind DialKind
	// Addr is the address tried last, "ip:port" or a socket's path, fit for
	// GetOptions.Avoid; the target's "host:port" when it was not resolved.
	Addr string
	// Err is the cause. With several addresses tried it is all their errors
	// joined (errors.Join) in the order of trying.
	Err error
}

// Error names the action, the address and the cause.
func (e *DialError) Error() string { return "dial upstream " + e.Addr + ": " + e.Err.Error() }

// maxText bounds Text: a certificate's error may quote as many names as the
// upstream likes.
const maxText = 300

// Text is the cause in one line of at most 300 bytes, safe to show: x509's or
// the resolver's words, or the errno's. What cannot be printed is replaced, since
// some of it is the upstream's.
func (e *DialError) Text() string {
	text := e.Err.Error()
	cut := len(text) > maxText
	if cut {
		text = text[:maxText-len("…")]
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return ' '
		case !unicode.IsPrint(r):
			return '?' // and for bytes that are no UTF-8
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if cut {
		text += "…"
	}
	return text
}

// Unwrap gives the cause to errors.Is and errors.As.
func (e *DialError) Unwrap() error { return e.Err }

// classify gives the kind of an error met while connecting, by type and
// errno, never by text. The order matters: a canceled dial may also look like
// a timeout, and EAGAIN (a unix socket's full queue) calls itself a timeout.
func classify(err error) DialKind {
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return KindCanceled
	case isAny(err, syscall.EMFILE, syscall.ENFILE):
		return KindNoDescriptors
	case isAny(err, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ENOENT, syscall.EAGAIN):
		return KindRefused
	case errors.As(err, &dns):
		return KindDNS
	case isAny(err, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENETDOWN,
		syscall.EHOSTDOWN, syscall.EADDRNOTAVAIL):
		return KindUnreachable
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return KindTimeout
	}
	return KindOther
}

// classifyHandshake is classify for errors of the TLS handshake: whatever is
// not a cancel or a timeout is a TLS failure, a reset included.
func classifyHandshake(err error) DialKind {
	switch k := classify(err); k {
	case KindCanceled, KindTimeout:
		return k
	}
	return KindTLS
}

// classifyLookup is classify for errors of the resolver: whatever is not a
// cancel or a want of descriptors is a DNS failure, a timeout included.
func classifyLookup(ctx context.Context, err error) DialKind {
	if errors.Is(ctx.Err(), context.Canceled) {
		return KindCanceled
	}
	if k := classify(err); k == KindCanceled || k == KindNoDescriptors {
		return k
	}
	return KindDNS
}

func isAny(err error, codes ...syscall.Errno) bool {
	for _, c := range codes {
		if errors.Is(err, c) {
			return true
		}
	}
	return false
}
