// Package admin is the HTTP server beside the data path. Metrics and health are open to everyone;
// the rest is for this machine and those that Access allows.
//
// Make a Server with New, open it with Listen, then call Serve in a goroutine. Close it last,
// after the data path has drained: readiness must be readable as "no" during the drain.
//
// Everyone who can reach the port can read /metrics, /livez and /readyz. Endpoints that show the
// configuration or change anything are protected by Access.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/retryproxy/retryproxy/proxy/accepting"
)

// Limits of the server. All its requests are small; a scrape is the largest response.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 60 * time.Second // a profile takes 30 s by default
	idleTimeout       = 2 * time.Minute  // longer than the usual scrape interval
	maxHeaderBytes    = 16 << 10
	maxConnections    = 128 // probes, scrapers and people; when exceeded, one without a request is closed for the next, see limited
)

// Options are what the server shows and controls. Metrics, Ready, Config, Drain, Quit and
// RetryPercent are required.
type Options struct {
	Metrics http.Handler
	Ready   func() error // nil when requests are accepted, otherwise the reason, in a word or two
	Config  func() any   // the effective configuration without secrets, for JSON
	Drain   func()       // begins a drain; returns at once, and may be called again
	Quit    func()       // likewise, without the delay before it
	// End serves /drained; nil means that the path does not exist.
	End *End
	// RetryPercent shows and changes the percentage of retries that are made.
	RetryPercent RetryPercent
	// Page serves / and the paths below /page/; nil means that they do not exist.
	Page   http.Handler
	Access Access      // who may use what is not open to everyone
	Log    *log.Logger // for net/http's messages; nil drops them
}

// Server is the admin listener. Its methods are safe for concurrent use.
type Server struct {
	http     *http.Server
	socket   *limited
	served   chan struct{} // closed when Serve has accepted its last connection
	unserved accepting.Unserved
}

// New returns a Server. It opens nothing.
func New(o Options) *Server {
	mux, access := http.NewServeMux(), &o.Access
	mux.Handle("GET /metrics", o.Metrics)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { readiness(w, o.Ready()) })
	mux.Handle("GET /config", access.reading(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { sendJSON(w, o.Config()) })))
	mux.Handle("POST /drain", access.writing(order(o.Drain, "draining")))
	mux.Handle("POST /quit", access.writing(order(o.Quit, "ending")))
	if o.End != nil {
		mux.Handle("GET /drained", o.End)
	}
	mux.Handle("/retry-percent", access.reading(o.RetryPercent))
	if o.Page != nil {
		mux.Handle("GET /{$}", access.reading(o.Page))
		mux.Handle("GET /page/", access.reading(o.Page))
		mux.Handle("GET /page", access.reading(http.RedirectHandler("/", http.StatusFound))) // its name in the documentation
	}
	addProfiles(mux, access)
	s := &Server{served: make(chan struct{})}
	s.http = &http.Server{
		Handler:           harden(mux),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          logger(o.Log),
		ConnState: func(nc net.Conn, state http.ConnState) {
			noteState(nc, state)
			s.unserved.Note(nc, state)
		},
	}
	return s
}

func logger(l *log.Logger) *log.Logger {
	if l == nil {
		return log.New(io.Discard, "", 0)
	}
	return l
}

// addProfiles serves Go profiles to clients that may write, because a profile costs CPU.
// net/http/pprof's own registration would serve them on the default mux and to anyone.
func addProfiles(mux *http.ServeMux, access *Access) {
	for pattern, handler := range map[string]http.HandlerFunc{
		"GET /debug/pprof/":        pprof.Index,
		"GET /debug/pprof/cmdline": pprof.Cmdline,
		"GET /debug/pprof/profile": pprof.Profile,
		"GET /debug/pprof/symbol":  pprof.Symbol,
		"GET /debug/pprof/trace":   pprof.Trace,
	} {
		mux.Handle(pattern, access.writing(handler))
	}
}

// harden sets the security headers for browsers on every response.
func harden(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// order runs do, which only begins something, and responds with a line of text. It needs no body
// and no Content-Type, because a Job's sidecar is often ended by a shell's wget.
func order(do func(), answer string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		do()
		say(w, http.StatusAccepted, answer)
	})
}

func say(w http.ResponseWriter, status int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(line + "\n")) // a prober that left needs no response
}

func readiness(w http.ResponseWriter, why error) {
	if why != nil {
		say(w, http.StatusServiceUnavailable, why.Error())
		return
	}
	say(w, http.StatusOK, "ok")
}

func sendJSON(w http.ResponseWriter, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		say(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n'))
}

// Listen opens the listener, "tcp" with host:port or "unix" with a path.
func (s *Server) Listen(network, address string) error {
	var config net.ListenConfig
	l, err := config.Listen(context.Background(), network, address)
	if err != nil {
		return err
	}
	s.Use(l)
	return nil
}

// Use sets an open socket instead of Listen. The server then owns it.
func (s *Server) Use(l net.Listener) { s.socket = newLimited(l, maxConnections) }

// Abandon closes the socket of a server that has one and will not serve.
func (s *Server) Abandon() {
	if s.socket != nil {
		_ = s.socket.Close()
	}
}

// Addr returns the address of the server. Call it after Listen or Use.
func (s *Server) Addr() net.Addr { return s.socket.Addr() }

// Serve serves until Close; it then returns nil. It may be called once.
func (s *Server) Serve() error {
	defer close(s.served)
	err := s.http.Serve(s.socket)
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Close ends a server that serves. Clients that have connected get their responses, until ctx ends.
func (s *Server) Close(ctx context.Context) error {
	s.socket.Finish()
	select {
	case <-s.served:
	case <-ctx.Done():
	}
	s.unserved.Wait(ctx)
	if err := s.http.Shutdown(ctx); err != nil {
		return s.http.Close()
	}
	return nil
}
