// Command example plays the parts around retryproxy in the compose stacks: an
// application, a flaky upstream, and their clients; or the API of a language
// model (provider) and its clients (prompts).
//
//	example app      answers by asking UPSTREAM
//	example api      fails every other attempt over https, for docs/tutorials/api.md
//	example flaky    fails every FAIL_EVERY-th request that was not sent before
//	example client   sends RATE requests a second to TARGET and counts what comes back
//	example provider has a limit of TOKENS_PER_MINUTE, and writes words
//	example prompts  sends RATE prompts a second to TARGET
//	example health   asks one of these on this machine whether it is there
//	example stats    prints what it counted
//
// All but api listen on LISTEN (:3000). /healthz answers 200, /stats tells what was
// counted so far as JSON. The client's /pause stops its requests and answers
// when none is in flight, its /resume lets them go on and begins a new window.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func main() {
	parts := map[string]func(*http.ServeMux) error{"app": addApp, "flaky": addFlaky, "client": addClient, "provider": addProvider, "prompts": addPrompts}
	if len(os.Args) == 2 && (os.Args[1] == "health" || os.Args[1] == "stats") {
		os.Exit(ask(map[string]string{"health": "/healthz", "stats": "/stats"}[os.Args[1]]))
	}
	if len(os.Args) == 2 && os.Args[1] == "api" {
		exit(serveAPI())
	}
	if len(os.Args) != 2 || parts[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: example api|app|flaky|client|provider|prompts|health|stats")
		os.Exit(2)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	err := parts[os.Args[1]](mux)
	if err == nil {
		err = serve(&http.Server{Addr: env("LISTEN", ":3000"), Handler: mux, ReadHeaderTimeout: 10 * time.Second})
	}
	exit(err)
}

// exit ends the program, with code 1 and its text where there is an error.
func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "example:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve ends in order at SIGTERM, within 5 s.
func serve(s *http.Server) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.ListenAndServe() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	patience, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := s.Shutdown(patience); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// ask prints the response of the part that runs in this container. Its exit code
// tells the container's health.
func ask(path string) int {
	response, err := (&http.Client{Timeout: 2 * time.Second}).Get("http://localhost" + env("LISTEN", ":3000") + path)
	if err != nil {
		fmt.Fprintln(os.Stderr, "example:", err)
		return 1
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(response.Body)
	if err != nil {
		fmt.Fprintln(os.Stderr, "example:", err)
		return 1
	}
	var readable bytes.Buffer
	if json.Indent(&readable, body, "", "  ") == nil { // "ok" is not JSON
		body = readable.Bytes()
	}
	_, _ = os.Stdout.Write(body)
	if response.StatusCode != http.StatusOK {
		return 1
	}
	return 0
}

// env is the value of a variable, fallback where it is not set or empty.
func env(name, fallback string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return fallback
}

// number is the same for a number that must be one.
func number(name string, fallback int) (int, error) {
	v := os.Getenv(name)
	if v == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s=%s: expected a whole number, 0 or more", name, v)
	}
	return n, nil
}

func sendJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // who left needs no response
}
