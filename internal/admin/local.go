package admin

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// LocalOnly lets through requests that a program on this machine made for
// itself, and answers 403 to all others. A connection from loopback is not
// enough for that:
//
//   - a browser here can be made to send one by a page from elsewhere, whose
//     name resolves to 127.0.0.1 (DNS rebinding) or which simply posts across
//     sites: so Host has to name loopback, and Origin and Sec-Fetch-Site, which
//     browsers add and scripts cannot change, must not tell of another site;
//   - a proxy here can pass on one from outside, our own data path included if
//     its upstream is misconfigured: so no field that proxies add may be there.
func LocalOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkLocal(r); err != nil {
			say(w, http.StatusForbidden, "only for this machine: "+err.Error())
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Of the fields of our own data path X-Retryproxy-Attempt is always there; the
// others depend on the client (a unix socket has no address, HTTP/1.0 no Host).
var proxyFields = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "Via", "X-Retryproxy-Attempt"}

func checkLocal(r *http.Request) error {
	isUnix := false
	if addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		isUnix = addr.Network() == "unix" // who may open the socket is the file's mode to say
	}
	if !isUnix && !isLoopbackAddr(r.RemoteAddr) {
		return errors.New("the connection is from elsewhere")
	}
	if !isLoopbackHost(r.Host) {
		return errors.New("the Host is not a loopback name")
	}
	for _, name := range proxyFields {
		if len(r.Header.Values(name)) > 0 {
			return errors.New("the request came through a proxy")
		}
	}
	return checkSite(r)
}

func checkSite(r *http.Request) error {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
	default:
		return errors.New("the request was made by another site")
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" || !strings.EqualFold(u.Host, r.Host) {
			return errors.New("the Origin is another site")
		}
	}
	return nil
}

func isLoopbackAddr(remote string) bool {
	ap, err := netip.ParseAddrPort(remote)
	return err == nil && ap.Addr().Unmap().IsLoopback()
}

// isLoopbackHost takes localhost or a loopback address, with or without port.
// Names below localhost are left out: not every resolver keeps them here.
func isLoopbackHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return strings.EqualFold(host, "localhost")
}
