package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"

	"github.com/retryproxy/retryproxy/internal/webhook"
	"github.com/retryproxy/retryproxy/proxy/certs"
)

const webhookUsage = `Usage: retryproxy-inject webhook --cert FILE [flags]

Serves a mutating admission webhook at /mutate. Pods with the annotation
retryproxy.io/inject: "true" get a sidecar as retryproxy-inject gives it, by the
flags below and the Pod's own annotations. One that asks and cannot be given one
is refused, with the reason. The certificate follows its files. /livez and /readyz
answer probes. SIGTERM ends it in order. deploy/k8s/overlays/webhook has the
manifests.

Flags:
`

func runWebhook(ctx context.Context, out *outside) error {
	f := flag.NewFlagSet("retryproxy-inject webhook", flag.ContinueOnError)
	o := options(f, out.defaultImage())
	var files certs.Files
	listen := f.String("listen", ":8443", "`address` to listen on")
	f.StringVar(&files.Cert, "cert", "", "PEM `file` of the certificate, leaf first; the key is in the same file, or in the file beside it that ends in .key")
	if err := parse(f, webhookUsage, out.Args[1:], out.Stdout); err != nil {
		return err
	}
	if err := o.Check(); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if files.Cert == "" {
		return fmt.Errorf("%w: --cert is required", errUsage)
	}
	log := slog.New(slog.NewJSONHandler(out.Stderr, nil))
	s, err := webhook.New(*o, files, log)
	if err != nil {
		return err
	}
	if err := s.Listen(*listen); err != nil {
		return err
	}
	log.Info("started", "version", out.Version, "listen", s.Addr().String(), "image", o.Image)
	err = s.Serve(ctx)
	log.Info("ended", "error", err)
	return err
}
