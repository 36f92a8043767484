package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/retryproxy/retryproxy/ctl/inject"
	"github.com/retryproxy/retryproxy/ctl/webhook"
	"github.com/retryproxy/retryproxy/internal/logwriter"
	"github.com/retryproxy/retryproxy/proxy/certs"
)

func webhookCommand(o *outside) *cobra.Command {
	options := inject.Default(defaultImage())
	var files certs.Files
	var listen string
	c := &cobra.Command{
		Use:   "webhook --cert FILE [flags]",
		Short: "inject the sidecar into Pods when Kubernetes admits them",
		Long: `Serves a mutating admission webhook at /mutate. Pods with the annotation
retryproxy.io/inject: "true" get the sidecar that inject adds, from the flags below
and the Pod's own annotations. If a Pod cannot get one, it is refused with the reason.
The certificate is read again when its files change. /livez and /readyz are for probes.
SIGTERM shuts it down gracefully. deploy/k8s/overlays/webhook has the manifests.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := options.Check(); err != nil {
				return wrong(c, err)
			}
			if files.Cert == "" {
				return wrong(c, errors.New("--cert must be given"))
			}
			return runWebhook(c.Context(), o, options, files, listen)
		},
	}
	f := c.Flags()
	f.StringVar(&files.Cert, "cert", "", "PEM `file` of the certificate, leaf first; the key is in the same file, or in the file beside it that ends in .key")
	f.StringVar(&listen, "listen", ":8443", "`address` to listen on")
	options.WebhookFlags(f)
	complete(c, "pull-policy", "Always", "IfNotPresent", "Never")
	return c
}

// runWebhook serves until ctx ends or a signal asks for the end.
func runWebhook(ctx context.Context, o *outside, options inject.Options, files certs.Files, listen string) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	if o.ignorePipe != nil {
		o.ignorePipe()
	}
	lines := logwriter.New(o.stderr) // a review must not wait for the log
	defer lines.Close(time.Second)
	lines.ReportDropped(droppedLine)
	log := slog.New(slog.NewJSONHandler(lines, nil))
	s, err := webhook.New(options, files, log)
	if err != nil {
		return err
	}
	if err := s.Listen(listen); err != nil {
		return err
	}
	log.Info("started", "version", version, "listen", s.Addr().String(), "image", options.Image)
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
