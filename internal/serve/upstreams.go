package serve

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

const (
	maxChecked = 20              // upstreams that are checked at start
	tlsCheck   = 2 * time.Second // for the handshake with an upstream without TLS
)

// checkUpstreams connects once to every upstream, and logs what is probably a mistake in the settings: a
// name that cannot be resolved, a port that nothing listens on, a certificate that cannot be verified, TLS
// where there is none and the other way round. It sends no request. It ends with ctx.
func (a *app) checkUpstreams(ctx context.Context, s *config.Settings, c *proxy.Config) {
	seen := map[string]bool{}
	for i, r := range s.All() {
		target := c.Default.Upstream
		if i > 0 {
			target = c.Routes[i-1].Upstream
		}
		if key := target.Key(); !seen[key] && len(seen) < maxChecked {
			seen[key] = true
			a.checkUpstream(ctx, r, target)
		}
	}
}

// checkUpstream logs what is wrong with the upstream of a route.
func (a *app) checkUpstream(ctx context.Context, r *config.Route, target upstream.Target) {
	fields := []zap.Field{zap.String("upstream", target.String())}
	if target.TLS == nil {
		target.Protocol = upstream.HTTP1 // a connection without a byte
	}
	group := upstream.NewGroup(target, upstream.Options{})
	defer group.Close()
	conn, err := group.Get(ctx, upstream.GetOptions{DialTimeout: a.checkFor})
	if err == nil {
		_ = conn.Close()
		if target.TLS == nil && looksSecure(target.Address) && speaksTLS(ctx, target.Address, cmp.Or(a.checkFor, tlsCheck)) {
			a.log.Warn("the upstream speaks TLS, but its URL begins with http", append(fields, zap.String("hint", "did you mean https://"+target.Address+"?"))...)
		}
		return
	}
	var failed *upstream.DialError
	if !errors.As(err, &failed) || failed.Kind == upstream.KindCanceled {
		return
	}
	fields = append(fields, zap.String("address", failed.Addr), zap.String("error", failed.Text()))
	var plain tls.RecordHeaderError
	switch {
	case failed.Untrusted:
		a.log.Warn("the certificate of the upstream cannot be verified; requests to it will fail", append(fields, zap.String("hint", admission.CertificateHint(failed)))...)
	case errors.As(err, &plain):
		a.log.Warn("the upstream does not speak TLS, but its URL begins with https", append(fields, zap.String("hint", "did you mean "+plainURL(&target)+"?"))...)
	case failed.Kind == upstream.KindDNS:
		a.log.Warn("the name of the upstream cannot be resolved", append(fields, zap.String("hint", "check the spelling of "+r.Blame("UPSTREAM")+", and that the name exists in this network"))...)
	case r.Breaker == "queue" && r.Upstream.Loopback(): // it is probably about to start
		a.log.Info("the upstream does not accept connections yet; requests are queued until it does",
			append(fields, zap.Duration("queue_timeout_seconds", r.QueueTimeout), zap.String("hint", unreachableHint(r, target.Network)))...)
	default:
		a.log.Warn("the upstream does not accept connections", append(fields, zap.String("hint", unreachableHint(r, target.Network)))...)
	}
}

// looksSecure reports whether the port is one that people use for TLS. Only such an upstream gets a
// handshake without TLS in its URL, since others would log a malformed request at every start.
func looksSecure(address string) bool {
	_, port, err := net.SplitHostPort(address)
	return err == nil && strings.HasSuffix(port, "443")
}

// speaksTLS reports whether a TLS handshake succeeds, whatever the certificate.
func speaksTLS(ctx context.Context, address string, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} // nothing is sent, and only the protocol matters
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// plainURL returns the URL of a target with TLS, without TLS.
func plainURL(target *upstream.Target) string {
	for _, scheme := range [][2]string{{"https", "http"}, {"h2", "h2c"}} {
		if rest, is := strings.CutPrefix(target.String(), scheme[0]+"://"); is {
			return scheme[1] + "://" + rest
		}
	}
	return "http"
}

// unreachableHint returns what to check if nothing accepts connections.
func unreachableHint(r *config.Route, network string) string {
	hint := "check " + r.Blame("UPSTREAM") + ", and that the upstream runs"
	if network == "tcp" && r.Upstream.Loopback() && inContainer() {
		hint += "; in a container, localhost is the container itself, unless it shares the network of another one"
	}
	return hint
}

// inContainer reports whether Docker or Podman runs this process. In Kubernetes it is false, where the
// containers of a Pod share localhost.
func inContainer() bool {
	if os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		return false
	}
	for _, file := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(file); err == nil {
			return true
		}
	}
	return false
}
