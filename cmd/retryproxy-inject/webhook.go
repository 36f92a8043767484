package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"time"

	"github.com/retryproxy/retryproxy/internal/companion"
	"github.com/retryproxy/retryproxy/internal/inject"
	"github.com/retryproxy/retryproxy/internal/logwriter"
	"github.com/retryproxy/retryproxy/internal/webhook"
	"github.com/retryproxy/retryproxy/proxy/certs"
)

const webhookUsage = `Usage: retryproxy webhook --cert FILE [flags]

Serves a mutating admission webhook at /mutate. Pods with the annotation
retryproxy.io/inject: "true" get the sidecar that retryproxy-inject adds, from the
flags below and the Pod's own annotations. If a Pod cannot get one, it is refused
with the reason. The certificate is read again when its files change. /livez and
/readyz are for probes. SIGTERM shuts it down gracefully.
deploy/k8s/overlays/webhook has the manifests.

Flags:
`

func runWebhook(ctx context.Context, out *outside) error {
	f := flag.NewFlagSet("retryproxy-inject webhook", flag.ContinueOnError)
	o := inject.Default(out.defaultImage())
	o.WebhookFlags(f)
	var files certs.Files
	listen := f.String("listen", ":8443", "`address` to listen on")
	f.StringVar(&files.Cert, "cert", "", "PEM `file` of the certificate, leaf first; the key is in the same file, or in the file beside it that ends in .key")
	if err := companion.Parse(f, webhookUsage, out.Args[1:], out.Stdout); err != nil {
		return err
	}
	if err := o.Check(); err != nil {
		return fmt.Errorf("%w: %w", companion.ErrUsage, err)
	}
	if files.Cert == "" {
		return fmt.Errorf("%w: --cert must be given", companion.ErrUsage)
	}
	if out.IgnorePipe != nil {
		out.IgnorePipe()
	}
	lines := logwriter.New(out.Stderr) // a review must not wait for the log
	defer lines.Close(time.Second)
	lines.ReportDropped(droppedLine)
	log := slog.New(slog.NewJSONHandler(lines, nil))
	s, err := webhook.New(o, files, log)
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

// droppedLine formats the line about lines of the log that were dropped.
func droppedLine(dropped uint64) []byte {
	var line bytes.Buffer
	slog.New(slog.NewJSONHandler(&line, nil)).Warn("lines of the log were dropped because nobody read it", "lines", dropped)
	return line.Bytes()
}
