package webhook

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/retryproxy/retryproxy/ctl/inject"
	"github.com/retryproxy/retryproxy/internal/logtest"
	"github.com/retryproxy/retryproxy/proxy/certs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for something; only a failure takes that long.
const patience = time.Minute

// certify atomically replaces the files with a new self-signed certificate for 127.0.0.1, and
// returns it.
func certify(t *testing.T, files certs.Files, serial int64) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "webhook"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(path, kind string, der []byte) {
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(files.Cert, "CERTIFICATE", der)
	write(certs.KeyFile(files.Cert), "PRIVATE KEY", keyDER)
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// serve runs a webhook until the test ends.
func serve(t *testing.T) (url string, files certs.Files, shown *x509.Certificate, log *logtest.Buffer) {
	t.Helper()
	dir := t.TempDir()
	files = certs.Files{Cert: filepath.Join(dir, "tls.crt")}
	shown = certify(t, files, 1)
	log = &logtest.Buffer{}
	s, err := New(inject.Default("registry.example/retryproxy:1.0.0"), files, slog.New(slog.NewJSONHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "https://" + s.Addr().String(), files, shown, log
}

// client trusts one certificate only, and keeps no connections.
func client(trusted *x509.Certificate) *http.Client {
	pool := x509.NewCertPool()
	pool.AddCert(trusted)
	return &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
}

func do(t *testing.T, c *http.Client, method, url, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // only read
	content, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(content)
}

func TestAnswersOverTLS(t *testing.T) {
	url, _, shown, log := serve(t)
	c := client(shown)
	status, body := do(t, c, "POST", url+"/mutate?timeout=10s", question(t))
	if status != 200 || !strings.Contains(body, `"patchType":"JSONPatch"`) {
		t.Errorf("%d %s", status, body)
	}
	if !strings.Contains(log.String(), `"msg":"injected","pod":{"namespace":"shop","name":"web-5d4f8c7b9-*"}`) {
		t.Errorf("not in the log: %s", log.String())
	}
	if status, body := do(t, c, "POST", url+"/mutate", strings.Replace(question(t), `"name": "http", `, "", 1)); status != 200 || !strings.Contains(body, `"allowed":false`) {
		t.Errorf("%d %s", status, body)
	}
	if !strings.Contains(log.String(), `"msg":"refused"`) {
		t.Errorf("not in the log: %s", log.String())
	}
	for path, want := range map[string]int{"GET /livez": 200, "GET /readyz": 200, "GET /mutate": 405, "POST /other": 404} {
		method, path, _ := strings.Cut(path, " ")
		if status, _ := do(t, c, method, url+path, ""); status != want {
			t.Errorf("%s %s: %d, want %d", method, path, status, want)
		}
	}
	if status, _ := do(t, c, "POST", url+"/mutate", "nonsense"); status != 400 {
		t.Errorf("nonsense: %d", status)
	}
}

// The server may close before it has read everything, so the client may see either result.
func TestTooLargeIsRefused(t *testing.T) {
	url, _, shown, _ := serve(t)
	res, err := client(shown).Post(url+"/mutate", "application/json", strings.NewReader(strings.Repeat(" ", maxReview+1)))
	if err != nil {
		return
	}
	defer res.Body.Close() //nolint:errcheck // not read
	if res.StatusCode != 413 {
		t.Error(res.StatusCode)
	}
}

func TestCertificateFollowsItsFiles(t *testing.T) {
	url, files, first, log := serve(t)
	// a certificate that does not match its key: the old one stays
	if err := os.WriteFile(certs.KeyFile(files.Cert), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	await(t, "the half-written key is told of", func() bool { return strings.Contains(log.String(), "the new certificate cannot be used") })
	if status, _ := do(t, client(first), "GET", url+"/livez", ""); status != 200 {
		t.Error(status)
	}
	second := certify(t, files, 2)
	await(t, "the new certificate is shown", func() bool {
		res, err := client(second).Get(url + "/livez")
		if err != nil {
			return false
		}
		return res.Body.Close() == nil
	})
	if res, err := client(first).Get(url + "/livez"); err == nil {
		_ = res.Body.Close()
		t.Error("the old certificate is shown still")
	}
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatalf("%s: not within %v", what, patience)
}

// The API server connects for each review that has no idle connection. A connection from before the
// end gets its answer, although the process had no time to accept it.
func TestClientsThatConnectedBeforeTheEndAreAnswered(t *testing.T) {
	files := certs.Files{Cert: filepath.Join(t.TempDir(), "tls.crt")}
	trusted := certify(t, files, 1)
	s, err := New(inject.Default("retryproxy:1"), files, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	connection, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	served := make(chan error, 1)
	go func() { served <- s.Serve(ended) }()
	c := client(trusted)
	c.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) { return connection, nil }
	if status, body := do(t, c, "GET", "https://"+s.Addr().String()+"/readyz", ""); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	c.CloseIdleConnections()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
