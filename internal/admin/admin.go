// Package admin is the HTTP server beside the data path: metrics and health
// for everyone, the rest for this machine and those whom Access names.
//
// Make a Server with New, open it with Listen, then Serve in a goroutine, and
// Close it last of all, after the data path has drained: readiness has to be
// readable as "no" while that goes on.
//
// Whoever can reach the port can read /metrics, /livez and /readyz. What shows
// the configuration or changes anything is behind Access.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"net"
	"net/http"
	"net/http/pprof"
	"time"
)

// Bounds of the server. Nothing it serves is large to ask for; a scrape is the
// largest answer.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 60 * time.Second // a profile takes 30 s by default
	idleTimeout       = 2 * time.Minute  // longer than the usual scrape interval
	maxHeaderBytes    = 16 << 10
	maxConnections    = 128 // probes, scrapers and people; beyond, one that asks nothing is closed for the next, see limited
)

// Options are what the server shows and starts. Metrics, Ready, Config, Drain,
// Quit and RetryPercent have to be set.
type Options struct {
	Metrics http.Handler
	Ready   func() error // nil when requests are taken, else why not, in a word or two
	Config  func() any   // the effective configuration without secrets, for JSON
	Drain   func()       // begins to drain; returns at once, and may be called again
	Quit    func()       // likewise, without the delay before
	// End serves /drained; nil: nothing is there.
	End *End
	// RetryPercent shows and changes the share of retries that are made.
	RetryPercent RetryPercent
	// Page serves / and what is below /page/; nil: nothing is there.
	Page   http.Handler
	Access Access      // to all that is not open to everybody
	Log    *log.Logger // for net/http's complaints; nil drops them
}

// Server is the admin listener. Its methods are safe for concurrent use.
type Server struct {
	http   *http.Server
	socket net.Listener
}

// New makes a Server; nothing is opened yet.
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
	}
	addProfiles(mux, access)
	return &Server{http: &http.Server{
		Handler:           harden(mux),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          logger(o.Log),
		ConnState:         noteState,
	}}
}

func logger(l *log.Logger) *log.Logger {
	if l == nil {
		return log.New(discard{}, "", 0)
	}
	return l
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// addProfiles serves Go profiles to those who may write: a profile costs CPU. It is not
// net/http/pprof's own registration, which would serve them on any mux and to anyone.
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

// harden sets what every response should say to a browser.
func harden(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// order does something that is only begun, and says so. It wants no body and
// no type of one: who ends a Job's sidecar is a shell's wget as often as not.
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

// Use takes a socket that listens already instead of Listen. It becomes the
// server's to close.
func (s *Server) Use(l net.Listener) { s.socket = l }

// Socket is what the server listens on, after Listen or Use. It stays the
// server's.
func (s *Server) Socket() net.Listener { return s.socket }

// Addr is where the server listens. Call it after Listen or Use.
func (s *Server) Addr() net.Addr { return s.socket.Addr() }

// Serve answers until Close; its error is nil then.
func (s *Server) Serve() error {
	err := s.http.Serve(newLimited(s.socket, maxConnections))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Close ends the server: answers in flight have the time of ctx to end.
func (s *Server) Close(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		return s.http.Close()
	}
	return nil
}
