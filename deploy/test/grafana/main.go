// Command grafana stands in for Grafana where its image cannot be pulled: it
// reads the same provisioning files from the same places, stricter than Grafana
// does, and answers those questions of Grafana's API that the compose test asks.
// It draws nothing.
//
//	/api/health                             whether it is there
//	/api/search                             the dashboards, by uid and title
//	/api/dashboards/uid/UID                 one of them
//	/api/datasources/proxy/uid/UID/...      passed on to a data source
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httputil"
	"os"
	"strings"
	"time"
)

func main() {
	if err := run("/etc/grafana/provisioning"); err != nil {
		fmt.Fprintln(os.Stderr, "grafana stand-in:", err)
		os.Exit(1)
	}
}

func run(provisioning string) error {
	sources, err := readSources(provisioning + "/datasources")
	if err != nil {
		return err
	}
	boards, err := readBoards(provisioning+"/dashboards", sources)
	if err != nil {
		return err
	}
	s := &http.Server{Addr: ":3000", Handler: serve(sources, boards), ReadHeaderTimeout: 10 * time.Second}
	return s.ListenAndServe()
}

func serve(sources map[string]source, boards map[string]board) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/health", func(w http.ResponseWriter, _ *http.Request) { sendJSON(w, map[string]string{"database": "ok"}) })
	mux.HandleFunc("GET /api/search", func(w http.ResponseWriter, _ *http.Request) {
		found := []map[string]string{}
		for _, b := range boards {
			found = append(found, map[string]string{"uid": b.UID, "title": b.Title, "type": "dash-db"})
		}
		sendJSON(w, found)
	})
	mux.HandleFunc("GET /api/dashboards/uid/{uid}", func(w http.ResponseWriter, r *http.Request) {
		b, ok := boards[r.PathValue("uid")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		sendJSON(w, map[string]any{"dashboard": b.raw})
	})
	mux.HandleFunc("/api/datasources/proxy/uid/{uid}/", func(w http.ResponseWriter, r *http.Request) {
		s, ok := sources[r.PathValue("uid")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Path = strings.TrimPrefix(p.Out.URL.Path, "/api/datasources/proxy/uid/"+s.UID)
			p.SetURL(s.at)
		}}
		proxy.ServeHTTP(w, r)
	})
	return mux
}

func sendJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // who left needs no response
}
