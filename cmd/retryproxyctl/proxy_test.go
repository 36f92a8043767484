package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/internal/logtest"
	"github.com/retryproxy/retryproxy/internal/logwriter"
	"github.com/retryproxy/retryproxy/internal/serve"
)

// patience is how long a test waits for something; only a failure takes that long.
const patience = time.Minute

// proxy is a retryproxy running in this process, with real sockets.
type proxy struct {
	t             *testing.T
	listen, admin string
	log           logtest.Buffer
	client        *http.Client
}

// startProxy runs retryproxy until the test ends; then it must shut down cleanly.
func startProxy(t *testing.T, environ ...string) *proxy {
	t.Helper()
	p := &proxy{t: t, client: &http.Client{Transport: &http.Transport{}}}
	env := []string{"RETRYPROXY_LISTEN=127.0.0.1:0", "RETRYPROXY_ADMIN_LISTEN=127.0.0.1:0"}
	for _, e := range environ {
		env = append(env, "RETRYPROXY_"+e)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		log := logwriter.New(&p.log)
		defer log.Close(time.Second)
		ended <- serve.Run(ctx, serve.Options{Env: env, Getenv: func(string) string { return "" }, Log: log})
	}()
	t.Cleanup(func() {
		p.client.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%v\n%s", err, p.log.String())
		}
	})
	p.await("start", func() bool {
		var line struct{ Msg, Listen, Admin string }
		for text := range strings.SplitSeq(p.log.String(), "\n") {
			if json.Unmarshal([]byte(text), &line) == nil && line.Msg == "started" {
				p.listen, p.admin = line.Listen, line.Admin
				return true
			}
		}
		return false
	})
	p.await("readiness", func() bool { status, _ := p.get("http://" + p.admin + "/readyz"); return status == 200 })
	return p
}

func (p *proxy) await(what string, done func() bool) {
	p.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if done() {
			return
		}
	}
	p.t.Fatalf("no %s in %v:\n%s", what, patience, p.log.String())
}

// get reads a response.
func (p *proxy) get(url string) (int, string) {
	p.t.Helper()
	response, err := p.client.Get(url)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // only a test
	body, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// command runs a command of this program against the proxy.
func (p *proxy) command(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(context.Background(), &outside{args: append(args, "--timeout=30s"), env: []string{"RETRYPROXY_ADMIN_LISTEN=" + p.admin}, stdout: &out, stderr: &errs})
	return code, out.String(), errs.String()
}
