// Package engine lets tests use the container engine of this machine: the
// docker command, containers and networks that end with the test, and questions
// about what runs.
//
// The tests below deploy/test are run by `make e2e-image`, `make e2e-compose`
// and `make e2e-pod`; plain `go test` leaves them out, see Asked.
package engine

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience is how long a test waits for what should happen at once or soon: a
// loaded machine starts a container in tens of seconds.
const Patience = 2 * time.Minute

// Asked skips the test unless E2E names it (or is "all"): it takes an engine
// and minutes. Where it was asked for, a missing engine fails it.
func Asked(t *testing.T, name string) {
	t.Helper()
	if asked := os.Getenv("E2E"); asked != name && asked != "all" {
		t.Skipf("make e2e-%s runs this", name)
	}
	if out, err := exec.Command("docker", "version", "--format", "{{.Server.Version}}").CombinedOutput(); err != nil {
		t.Fatalf("no container engine: %v: %s", err, out)
	}
}

// Root is the root of the tree.
func Root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above")
		}
	}
}

// Name is one that nothing else on this machine has.
func Name(part string) string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return "retryproxy-" + part + "-" + hex.EncodeToString(b[:])
}

// Try runs a command in the root of the tree. env is added to that of the test.
func Try(ctx context.Context, t *testing.T, env []string, name string, args ...string) (string, error) {
	t.Helper()
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Env = Root(t), append(os.Environ(), env...)
	var out, complaints bytes.Buffer
	c.Stdout, c.Stderr = &out, &complaints
	if err := c.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out.String(), complaints.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// Run is Try for what has to work; it has twenty minutes, for a compiler on a busy machine.
func Run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	out, err := Try(ctx, t, env, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Docker runs a docker command that has to work.
func Docker(t *testing.T, args ...string) string {
	t.Helper()
	return Run(t, nil, "docker", args...)
}

// Start runs a container in the background until the test ends and gives its
// name. args are those of docker run, the image and its command included.
func Start(t *testing.T, part string, args ...string) string {
	t.Helper()
	name := Name(part)
	Cleanup(t, func() { Remove(t, name) })
	Docker(t, append([]string{"run", "--detach", "--name", name}, args...)...)
	return name
}

// Remove ends a container. Of a failed test it shows the log first.
func Remove(t *testing.T, name string) {
	if t.Failed() {
		logs, _ := exec.Command("docker", "logs", "--tail", "40", name).CombinedOutput()
		t.Logf("the end of the log of %s:\n%s", name, logs)
	}
	if out, err := exec.Command("docker", "rm", "--force", "--volumes", name).CombinedOutput(); err != nil {
		t.Errorf("remove %s: %v: %s", name, err, out)
	}
}

// Network makes one that ends with the test, after its containers.
func Network(t *testing.T) string {
	t.Helper()
	name := Name("net")
	Cleanup(t, func() {
		if out, err := exec.Command("docker", "network", "rm", name).CombinedOutput(); err != nil {
			t.Errorf("remove network %s: %v: %s", name, err, out)
		}
	})
	Docker(t, "network", "create", name)
	return name
}

// Inspect fills in a template about a container or image.
func Inspect(t *testing.T, name, format string) string {
	t.Helper()
	return Docker(t, "inspect", "--format", format, name)
}

// Address is the container's on its network, reachable from this machine.
func Address(t *testing.T, name string) string {
	t.Helper()
	return Inspect(t, name, "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}")
}

// Await polls until done says yes.
func Await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatalf("no %s in %v", what, Patience)
}

var client = &http.Client{Timeout: Patience, Transport: &http.Transport{DisableKeepAlives: true}}

// Get asks a URL; status 0 and the error's text where there was no response.
func Get(url string) (status int, body string) { return Ask(http.MethodGet, url) }

// Ask does the same with any method, without a body.
func Ask(method, url string) (status int, body string) {
	request, err := http.NewRequest(method, url, nil)
	if err != nil {
		return 0, err.Error()
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	b, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(b)
}

var building sync.Mutex // guards built, and lets one build run at a time

var built = map[string]string{}

// once makes an image with the first call of a process; all get its name.
func once(t *testing.T, what string, make func() string) string {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	if built[what] == "" {
		built[what] = make()
	}
	return built[what]
}

// Example builds the example's binary of deploy/compose into an image and gives
// the image's name.
func Example(t *testing.T) string {
	t.Helper()
	return once(t, "example", func() string {
		const image = "retryproxy-example:test"
		dir := t.TempDir()
		Run(t, []string{"CGO_ENABLED=0"}, "go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", dir+"/example", "./deploy/compose/example")
		recipe := "FROM scratch\nCOPY example /example\nUSER 65532:65532\nENTRYPOINT [\"/example\"]\n"
		if err := os.WriteFile(dir+"/Dockerfile", []byte(recipe), 0o644); err != nil {
			t.Fatal(err)
		}
		Docker(t, "build", "--tag", image, dir)
		return image
	})
}

// Image builds retryproxy's image from a binary compiled on this machine, which
// is quick, and returns its name. That the builder's is the same is a test of its own.
func Image(t *testing.T) string {
	t.Helper()
	return once(t, "image", func() string { return build(t, "retryproxy:test") })
}

// FullImage is Image with all that the default image leaves out.
func FullImage(t *testing.T) string {
	t.Helper()
	return once(t, "full image", func() string { return build(t, "retryproxy:test-full", "TAGS=otel") })
}

func build(t *testing.T, name string, env ...string) string {
	t.Helper()
	arch := Docker(t, "version", "--format", "{{.Server.Arch}}")
	Run(t, env, "bash", "deploy/image/build", name, arch)
	return name + "-" + arch
}
