package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Access is who may use the endpoints that are not open to all. Even with the zero value, programs
// on this machine may. A connection from loopback is not enough to prove that:
//
//   - A page from elsewhere can make a browser here send one, if its name resolves to 127.0.0.1
//     (DNS rebinding) or if it posts across sites. So Host must be a loopback name. Origin and
//     Sec-Fetch-Site, which browsers add and scripts cannot change, must not name another site.
//   - A proxy here can forward one from outside; our own data path does if its upstream is
//     misconfigured. So headers that proxies add must be absent.
type Access struct {
	// Allow are networks whose clients may read. The same checks apply to them, except that Host
	// may also be an IP address, which DNS rebinding cannot produce.
	Allow []netip.Prefix
	// Token returns the secret whose holders may read and write from anywhere. It is called for
	// every request with a token. nil means that there is none.
	Token func() (string, error)
}

// reading passes requests that may read to next.
func (a *Access) reading(next http.Handler) http.Handler { return a.guard(next, true) }

// writing passes requests that may change something to next.
func (a *Access) writing(next http.Handler) http.Handler { return a.guard(next, false) }

func (a *Access) guard(next http.Handler, reads bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, err := a.check(r, reads && (r.Method == http.MethodGet || r.Method == http.MethodHead))
		if err == nil {
			next.ServeHTTP(w, r)
			return
		}
		if status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Basic realm="retryproxy", charset="UTF-8"`) // a browser asks for it
		}
		say(w, status, err.Error())
	})
}

// check returns the status and the error for a request that is not allowed.
func (a *Access) check(r *http.Request, reads bool) (int, error) {
	if a.Token != nil && r.Header.Get("Authorization") != "" {
		return a.checkToken(r)
	}
	err := checkLocal(r)
	if err == nil || reads && a.checkAllowed(r) == nil {
		return 0, nil
	}
	if a.Token != nil {
		return http.StatusUnauthorized, errors.New("allowed only from this machine, or with the token of RETRYPROXY_ADMIN_TOKEN_FILE: " + err.Error())
	}
	return http.StatusForbidden, errors.New("allowed only from this machine: " + err.Error())
}

// checkToken accepts the token by Bearer (RFC 6750 section 2.1) or, as browsers send it, as the
// password of Basic (RFC 7617). A browser also adds the latter to requests by other sites' pages.
func (a *Access) checkToken(r *http.Request) (int, error) {
	if err := checkSite(r, "http", "https"); err != nil { // a proxy in front may terminate TLS
		return http.StatusForbidden, err
	}
	want, err := a.Token()
	if err != nil {
		return http.StatusInternalServerError, err
	}
	_, given, ok := r.BasicAuth()
	if !ok {
		scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return http.StatusUnauthorized, errors.New("expected Authorization: Bearer TOKEN, or Basic with the token as password")
		}
		given = strings.TrimSpace(rest)
	}
	if x, y := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(want)); subtle.ConstantTimeCompare(x[:], y[:]) == 0 {
		return http.StatusUnauthorized, errors.New("this is not the token of RETRYPROXY_ADMIN_TOKEN_FILE")
	}
	return 0, nil
}

// checkAllowed returns an error unless the request may read from one of the networks of Allow.
func (a *Access) checkAllowed(r *http.Request) error {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !slices.ContainsFunc(a.Allow, func(p netip.Prefix) bool { return p.Contains(from.Addr().Unmap().WithZone("")) }) {
		return errElsewhere
	}
	if !isLoopbackHost(r.Host) && !isAddress(hostOf(r.Host)) {
		return errHost
	}
	return checkDirect(r)
}

var (
	errElsewhere = errors.New("the connection is from another machine (RETRYPROXY_ADMIN_ALLOW lists networks that may read)")
	errHost      = errors.New("the Host header is not localhost or a loopback address")
)

// Our own data path always adds X-Retryproxy-Attempt; the other headers depend on the client (a
// unix socket has no address, HTTP/1.0 no Host).
var proxyFields = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "Via", "X-Retryproxy-Attempt"}

func checkLocal(r *http.Request) error {
	isUnix := false
	if addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		isUnix = addr.Network() == "unix" // the file's mode controls who may open the socket
	}
	if !isUnix && !isLoopbackAddr(r.RemoteAddr) {
		return errElsewhere
	}
	if !isLoopbackHost(r.Host) {
		return errHost
	}
	return checkDirect(r)
}

// checkDirect returns an error for a request that came through a proxy or was made by another
// site's page.
func checkDirect(r *http.Request) error {
	for _, name := range proxyFields {
		if len(r.Header.Values(name)) > 0 {
			return errors.New("the request came through a proxy, as one of its headers shows")
		}
	}
	return checkSite(r, "http")
}

// checkSite returns an error for a request that another site's page made. schemes are those of
// this server's own URLs.
func checkSite(r *http.Request, schemes ...string) error {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
	default:
		return errors.New("the request was made by another site")
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || !slices.Contains(schemes, u.Scheme) || !strings.EqualFold(u.Host, r.Host) {
			return errors.New("the Origin header names another site")
		}
	}
	return nil
}

func isLoopbackAddr(remote string) bool {
	ap, err := netip.ParseAddrPort(remote)
	return err == nil && ap.Addr().Unmap().IsLoopback()
}

// isLoopbackHost reports whether hostport is localhost or a loopback address, with or without
// port. It excludes names below localhost, because not every resolver maps them to this machine.
func isLoopbackHost(hostport string) bool {
	host := hostOf(hostport)
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return strings.EqualFold(host, "localhost")
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// hostOf returns the host of a Host header, without port and brackets.
func hostOf(hostport string) string {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}
