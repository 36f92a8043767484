//go:build linux

package docs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/internal/needs"
)

// patience is how long a page may take on a busy machine.
const patience = 5 * time.Minute

// tree is a copy of the repository in which the first block of README.md was run: what a reader
// has before any other page.
var tree = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "retryproxy-docs-")
	if err != nil {
		return "", err
	}
	script := `git -C "$ROOT" ls-files -z --cached --others --exclude-standard | (cd "$ROOT" && xargs -0 cp --parents --no-dereference -t "$TREE" 2>/dev/null || true)
cd "$TREE"
make build ctl otel
go build -trimpath -o bin/ ./deploy/compose/example
go -C deploy/test-go build -trimpath -o ../../bin/ sigs.k8s.io/kustomize/kustomize/v5
`
	from, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	c := exec.Command("bash", "-euo", "pipefail", "-c", script)
	c.Env = append(os.Environ(), "ROOT="+from, "TREE="+dir, "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("%w\n%s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, _ := tree(); dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// session is a shell with what a reader has: the tree, and its programs in PATH. Pages that do not
// need the tree run in an empty directory.
func session(t *testing.T, inTree bool, script string) (string, error) {
	t.Helper()
	dir, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	c, cancel := shell("set -euo pipefail\nip link set lo up\n" + script)
	defer cancel()
	c.Dir = t.TempDir()
	if inTree {
		c.Dir = dir
	}
	c.Env = append(clean(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "CGO_ENABLED=0", "GOPROXY=off")
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err = c.Run()
	if errors.Is(err, syscall.EPERM) {
		needs.Missing(t, "it has to run as root, or where users may make network namespaces")
	}
	return out.String(), err
}

// shell is bash in a network namespace. Everything that it started ends with it.
func shell(script string) (*exec.Cmd, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	c := exec.CommandContext(ctx, "bash", "-c", script)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Cloneflags: syscall.CLONE_NEWNET}
	if os.Getuid() != 0 {
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	end := func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.Cancel, c.WaitDelay = end, 10*time.Second
	return c, func() {
		if c.Process != nil {
			_ = end() // what is left of the group
		}
		cancel()
	}
}

// clean is the environment without settings of retryproxy and of traces.
func clean() (all []string) {
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "RETRYPROXY_") && !strings.HasPrefix(e, "OTEL_") && !strings.HasPrefix(e, "http_proxy") {
			all = append(all, e)
		}
	}
	return all
}

// mark is the line before the output of a step.
func mark(b, s int) string { return fmt.Sprintf("@@@@ block %d step %d", b+1, s+1) }

// serve starts a block that does not end by itself, and waits until it is ready. The one before
// it is ended first, in order.
const serve = `
end() { curl -sS --noproxy "*" -o quit.txt -X POST http://127.0.0.1:9797/quit; wait "$serving"; serving=; }
[ -z "${serving-}" ] || end
( %s ) >serve.log 2>&1 &
serving=$!
for i in $(seq 300); do curl -sf --noproxy "*" -o ready.txt http://127.0.0.1:9797/readyz && break; sleep 0.1; done
curl -sf -o ready.txt http://127.0.0.1:9797/readyz || { cat serve.log; exit 1; }
`

// check is a block of settings, which retryproxy has to accept.
const check = `( set -a
RETRYPROXY_UPSTREAM=http://localhost:3000
%s
set +a
retryproxy check )
`

// script is what runs a page: its blocks in one shell.
func (p page) script(all []block) string {
	s := saved(p.path) + p.given + "\n"
	for i, b := range all {
		switch p.blocks[i].kind {
		case runs:
			s += "echo '" + mark(i, 0) + "'\n" + b.text + "\n"
		case prints:
			for j, step := range b.steps() {
				s += "echo '" + mark(i, j) + "'\n" + step.command + "\n"
			}
		case serves:
			s += "echo '" + mark(i, 0) + "'\n" + fmt.Sprintf(serve, b.text)
		case settings:
			s += "echo '" + mark(i, 0) + "'\n" + fmt.Sprintf(check, p.blocks[i].with+"\n"+b.text)
		}
	}
	return s + "[ -z \"${serving-}\" ] || end\n"
}

var save = regexp.MustCompile("(?ms)save this as `([a-z.]+)`:\n\n```yaml\n(.*?)^```$")

// saved writes the files that the page tells its reader to save.
func saved(path string) (s string) {
	text, _ := os.ReadFile(filepath.Join(root, path)) // blocks has read it
	for _, f := range save.FindAllStringSubmatch(string(text), -1) {
		s += "cat >" + f[1] + " <<'END'\n" + f[2] + "END\n"
	}
	return s
}

// outputOf is what a step printed.
func outputOf(out, mark string) string {
	_, rest, found := strings.Cut(out, mark+"\n")
	if !found {
		return "(not run)"
	}
	rest, _, _ = strings.Cut(rest, "@@@@ block ")
	return rest
}
