package main

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"flag"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

// update rewrites the expected output in testdata: go test -update.
var update = flag.Bool("update", false, "rewrite the expected output in testdata")

// TestMain lets scripts run this binary as retryproxyctl.
func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){"retryproxyctl": main})
}

type leakChecked struct{ *testing.M }

func (l leakChecked) Run() int {
	code := l.M.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		println(err.Error())
		return 1
	}
	return code
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata", RequireUniqueNames: true, RequireExplicitExec: true, UpdateScripts: *update})
}

// The webhook uses the certificate of its files, answers, and ends after SIGTERM.
func TestWebhookServesAndEnds(t *testing.T) {
	borrowed := httptest.NewTLSServer(nil) // for its certificate
	defer borrowed.Close()
	pair := borrowed.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("tls.key", "PRIVATE KEY", key)
	read, log := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, &outside{
			stdout: io.Discard, stderr: log,
			args: []string{"webhook", "--listen", "127.0.0.1:0", "--cert", write("tls.crt", "CERTIFICATE", pair.Certificate[0])},
		})
		_ = log.Close()
	}()
	lines := bufio.NewScanner(read)
	if !lines.Scan() {
		t.Fatal("it ended at once")
	}
	var started struct{ Listen, Image string }
	if err := json.Unmarshal(lines.Bytes(), &started); err != nil || started.Image != "retryproxy:dev" {
		t.Fatalf("%s: %v", lines.Bytes(), err)
	}
	client := borrowed.Client()
	response, err := client.Post("https://"+started.Listen+"/mutate", "application/json", strings.NewReader(
		`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", "kind": {"version": "v1", "kind": "Pod"}, "operation": "CREATE", "object": {"metadata": {}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	if answer, err := io.ReadAll(response.Body); err != nil || !strings.Contains(string(answer), `"response":{"uid":"1","allowed":true}`) {
		t.Errorf("%s, %v", answer, err)
	}
	client.CloseIdleConnections()
	cancel()
	for lines.Scan() { // what it logs at the end
	}
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d", code)
	}
}
