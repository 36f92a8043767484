// Package webhook is the mutating admission webhook: it answers the API server's review of
// a Pod with the change that package inject makes.
//
// It declares the few fields of admission.k8s.io/v1 that it uses: the API's own package is
// larger than the rest of the program.
package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/ctl/inject"
	"github.com/retryproxy/retryproxy/internal/filewatch"
	"github.com/retryproxy/retryproxy/proxy/accepting"
	"github.com/retryproxy/retryproxy/proxy/certs"
)

// Limits of the server. The API server waits 10 s by default. An object in etcd is at most
// 1.5 MiB by default, and a review can contain two.
const (
	maxReview         = 8 << 20
	readHeaderTimeout = 5 * time.Second
	timeout           = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	drainTimeout      = 10 * time.Second
)

// Server answers reviews over TLS, and reloads its certificate when the files change. Make
// one with New, then call Listen, then Serve.
type Server struct {
	options  inject.Options
	files    certs.Files
	log      *slog.Logger
	listener *accepting.Listener
	changes  *filewatch.Files
	shown    atomic.Pointer[tls.Config]
}

// New returns a Server and reads the certificate. Its error names the file.
func New(o inject.Options, files certs.Files, log *slog.Logger) (*Server, error) {
	// Watch before reading, so that no change is missed.
	s := &Server{options: o, files: files, log: log}
	s.changes = filewatch.New(files.Cert, certs.KeyFile(files.Cert))
	c, err := certs.Load(files)
	if err != nil {
		return nil, err
	}
	s.shown.Store(c)
	return s, nil
}

// Listen opens the address, host:port or :port.
func (s *Server) Listen(address string) error {
	var config net.ListenConfig
	l, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	s.listener = accepting.Wrap(l)
	return nil
}

// Addr returns the address on which it listens. Call it after Listen.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Serve answers until ctx ends, then the clients that have connected, and waits for requests in
// progress.
func (s *Server) Serve(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /mutate", s.mutate)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	var unserved accepting.Unserved
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: timeout, WriteTimeout: timeout, IdleTimeout: idleTimeout,
		ConnState: unserved.Note,
		ErrorLog:  slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: s.current},
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(s.listener, "", "") }()
	watching, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { s.changes.Run(watching, s.reload) })
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		s.listener.Finish()
		<-ended
		unserved.Wait(patience)
		err = server.Shutdown(patience)
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	stop()
	following.Wait()
	return err
}

// current returns the configuration of each handshake, so that a new certificate needs no
// restart.
func (s *Server) current(*tls.ClientHelloInfo) (*tls.Config, error) {
	c := s.shown.Load().Clone()
	c.NextProtos = []string{"h2", "http/1.1"}
	return c, nil
}

// reload loads new files. If they do not match yet, it logs that and keeps the old ones.
func (s *Server) reload() {
	c, err := certs.Load(s.files)
	if err != nil {
		s.log.Warn("the new certificate cannot be used; the old one stays", "error", err)
		return
	}
	s.shown.Store(c)
	end, _ := certs.Expiry(c)
	s.log.Info("a new certificate is in use", "expires", end)
}

func (s *Server) mutate(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReview))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	answer, verdict, err := Answer(body, s.options)
	if err != nil {
		s.log.Warn("not answered", "error", err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch pod := slog.Group("pod", "namespace", verdict.Namespace, "name", verdict.Name); {
	case verdict.Denial != "":
		s.log.Warn("refused", pod, "why", verdict.Denial)
	case verdict.Injected:
		s.log.Info("injected", pod, "notes", verdict.Notes)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // the API server has its own timeout
}
