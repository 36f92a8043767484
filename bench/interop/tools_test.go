package interop

import (
	"bytes"
	"io"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
)

// 100 000 requests of h2load, none failed, over HTTP/2 to an HTTP/1.1 and to an HTTP/2 upstream.
func TestH2Load(t *testing.T) {
	summary := regexp.MustCompile(`requests: (\d+) total, \d+ started, \d+ done, (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout`)
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	for name, upstream := range map[string]string{"HTTP/1.1": "http://" + newBed(t).Serve(answer), "HTTP/2": "h2c://" + newBed(t).Serve(answer)} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, upstream)
			out, err := run(t, 5*patience, "", nil, "h2load", "-n", "50000", "-c", "8", "-m", "32", "http://"+p.Addr+"/")
			found := summary.FindStringSubmatch(out)
			if err != nil || found == nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if found[2] != "50000" || !strings.Contains(out, "50000 2xx") {
				t.Errorf("%s\n%s", found[0], out)
			}
			if n := metric(t, p, "requests_total"); n != 50000 {
				t.Errorf("%v requests were counted", n)
			}
		})
	}
}

// git clones and pushes over smart HTTP.
func TestGit(t *testing.T) {
	core, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	env := []string{"HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
		"GIT_TERMINAL_PROMPT=0"}
	git := func(in string, args ...string) string {
		t.Helper()
		out, err := run(t, patience, in, env, "git", args...)
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(out)
	}
	bare := filepath.Join(dir, "served.git")
	git(dir, "init", "-q", "--bare", "-b", "main", bare)
	git(bare, "config", "http.receivepack", "true")
	backend := &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(core)), "git-http-backend"),
		Env: append([]string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1"}, env...)}
	var chunked atomic.Bool
	p := startProxy(t, "http://"+newBed(t).Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength < 0 {
			chunked.Store(true)
		}
		b, _ := io.ReadAll(r.Body) // CGI takes no chunks
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(b)), int64(len(b)), nil
		backend.ServeHTTP(w, r)
	})))

	work := filepath.Join(dir, "work")
	git(dir, "init", "-q", "-b", "main", work)
	f, err := os.Create(filepath.Join(work, "large"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadFrom(&pattern{n: 8 << 20}); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	git(work, "add", ".")
	git(work, "commit", "-q", "-m", "one")
	url := "http://" + p.Addr + "/served.git"
	git(work, "-c", "http.postBuffer=4096", "push", "-q", url, "main") // small: sent in chunks
	clone := filepath.Join(dir, "clone")
	git(dir, "clone", "-q", url, clone)
	if a, b := git(work, "rev-parse", "HEAD^{tree}"), git(clone, "rev-parse", "HEAD^{tree}"); a != b {
		t.Errorf("%s was pushed and %s cloned", a, b)
	}
	git(clone, "fsck", "--full", "--strict")
	if !chunked.Load() {
		t.Error("nothing was sent in chunks")
	}
}
