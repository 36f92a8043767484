package page

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"
)

// Limits of the event streams.
const (
	maxClients   = 8 // at once; further ones get 503
	every        = time.Second
	writeTimeout = 10 * time.Second // for a client that does not read
)

//go:embed assets
var assets embed.FS

// policyField is the Content-Security-Policy: the page may load only its own files, and text
// cannot become markup.
const policyField = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// kindsOf are the media types of the files, by extension.
var kindsOf = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// Snapshot is the whole visible state, as served at /page/state.json.
type Snapshot struct {
	State    State    `json:"state"`
	Requests Requests `json:"requests"`
}

// ServeHTTP serves the page at / and its files below /page/.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "expected GET", http.StatusMethodNotAllowed)
		return
	}
	switch r.URL.Path {
	case "/page/events":
		p.serveEvents(w, r)
	case "/page/state.json":
		p.serveState(w)
	default:
		serveFile(w, r)
	}
}

func serveFile(w http.ResponseWriter, r *http.Request) {
	name, below := strings.CutPrefix(r.URL.Path, "/page/")
	if r.URL.Path == "/" {
		name, below = "index.html", true
	}
	content, err := assets.ReadFile("assets/" + name)
	if !below || err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", kindsOf[path.Ext(name)])
	w.Header().Set("Content-Security-Policy", policyField)
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cross-Origin-Opener-Policy", "same-origin")
	w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

func (p *Page) serveState(w http.ResponseWriter) {
	now := time.Now()
	requests, _ := p.journal.read(now)
	body, err := json.Marshal(Snapshot{p.State(now), requests})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // a client that left needs no response
}

// serveEvents sends the state once a second, and the requests when they have changed, until the
// client leaves or Close is called.
func (p *Page) serveEvents(w http.ResponseWriter, r *http.Request) {
	select {
	case p.clients <- struct{}{}:
		defer func() { <-p.clients }()
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, fmt.Sprintf("%d pages are open already", maxClients), http.StatusServiceUnavailable)
		return
	}
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for sent := noVersion; ; {
		var text []byte
		text, sent = p.events(time.Now(), sent)
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := w.Write(text); err != nil || control.Flush() != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		case <-p.closed:
			return
		}
	}
}

// noVersion is that of a client that has no requests yet.
const noVersion = ^uint64(0)

// events returns what to send now to a client that has that version of the requests, and the version
// that it then has.
func (p *Page) events(now time.Time, sent uint64) (text []byte, version uint64) {
	text = event("state", p.State(now))
	if p.journal.changes() == sent {
		return text, sent
	}
	list, version := p.journal.read(now)
	return append(text, event("requests", list)...), version
}

func event(name string, v any) []byte {
	body, err := json.Marshal(v)
	if err != nil { // impossible for plain values
		body = []byte("null")
	}
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, body)
}
