package serve

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// logUntrusted connects once to every upstream with TLS, and logs which certificates cannot be
// verified. It logs nothing about an upstream that is down. It ends with ctx.
func (a *app) logUntrusted(ctx context.Context, c *proxy.Config) {
	seen := map[string]bool{}
	check := func(r *proxy.Route) {
		key := r.Upstream.Key()
		if r.Upstream.TLS == nil || seen[key] {
			return
		}
		seen[key] = true
		group := upstream.NewGroup(r.Upstream, upstream.Options{})
		defer group.Close()
		conn, err := group.Get(ctx, upstream.GetOptions{})
		if err == nil {
			_ = conn.Close()
			return
		}
		var failed *upstream.DialError
		if errors.As(err, &failed) && failed.Untrusted {
			a.log.Warn("the certificate of the upstream cannot be verified; requests to it will fail",
				zap.String("upstream", r.Upstream.String()), zap.String("address", failed.Addr),
				zap.String("error", failed.Text()), zap.String("hint", admission.CertificateHint(failed)))
		}
	}
	check(&c.Default)
	for i := range c.Routes {
		check(&c.Routes[i])
	}
}
