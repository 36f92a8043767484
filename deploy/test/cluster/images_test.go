package cluster

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/deploy/test/engine"
)

const (
	applicationImage = "retryproxy-application:test"
	adapterImage     = "retryproxy-adapter:test"
	prometheusImage  = "retryproxy-prometheus:test"
)

// images builds all images of the tests and gives each the names under which the
// manifests know it, so that the manifests are applied as they are.
func images(t *testing.T) []string {
	t.Helper()
	application := scratch(t, applicationImage, program(t, "./deploy/test/cluster/application"))
	job := scratch(t, "retryproxy-job:test", program(t, "./deploy/test/cluster/application"), "job")
	webhook := scratch(t, "retryproxyctl:test", program(t, "./cmd/retryproxyctl"))
	all := []string{engine.Image(t), application}
	ours := map[string]string{"retryproxy": engine.Image(t), "retryproxyctl": webhook, "web": application, "import": job}
	for _, name := range namesInManifests(t) {
		short := strings.TrimPrefix(name[:strings.LastIndexByte(name, ':')], "registry.example/")
		if ours[short] == "" {
			t.Fatalf("no image is known here for %s", name)
		}
		engine.Docker(t, "tag", ours[short], name)
		all = append(all, name)
	}
	return all
}

// toolImage loads an image of one of the tools.
func toolImage(t *testing.T, image, name string) {
	t.Helper()
	tools(t)
	engine.Run(t, nil, "bash", script, "load", scratch(t, image, filepath.Join(work(), "bin", name)))
}

// standIn loads an image that a user would pull, made from what this machine has.
func standIn(t *testing.T, name, image string) {
	t.Helper()
	engine.Run(t, nil, "bash", "deploy/test/stand-ins", name)
	engine.Run(t, nil, "bash", script, "load", image)
}

// tools compiles Helm, prometheus-adapter and Prometheus, if they are not there yet.
func tools(t *testing.T) {
	t.Helper()
	engine.Run(t, nil, "bash", script, "tools")
}

// namesInManifests are the images of deploy/k8s and of the tutorial.
func namesInManifests(t *testing.T) []string {
	t.Helper()
	found := map[string]bool{}
	name := regexp.MustCompile(`registry\.example/[a-z-]+:[0-9.]+`)
	err := filepath.WalkDir(filepath.Join(engine.Root(t), "deploy/k8s"), func(path string, entry os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		content, err := os.ReadFile(path)
		for _, n := range name.FindAllString(string(content), -1) {
			found[n] = true
		}
		return err
	})
	if err != nil || len(found) == 0 {
		t.Fatalf("images in deploy/k8s: %v, %v", found, err)
	}
	var all []string
	for n := range found {
		all = append(all, n)
	}
	return all
}

// compiled is where retryproxy and retryproxyctl lie, with the first call of the process.
var compiled string

func programs(t *testing.T) (directory string) {
	t.Helper()
	if compiled == "" {
		dir, err := os.MkdirTemp("", "retryproxy-cluster-test")
		if err != nil {
			t.Fatal(err)
		}
		engine.Last(func() { _ = os.RemoveAll(dir) })
		engine.Run(t, []string{"CGO_ENABLED=0"}, "go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", dir+"/", "./cmd/retryproxy", "./cmd/retryproxyctl")
		compiled = dir
	}
	return compiled
}

// program compiles a static one and returns its path.
func program(t *testing.T, directory string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(directory))
	engine.Run(t, []string{"CGO_ENABLED=0"}, "go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", path, directory)
	return path
}

// scratch builds an image of one program. args are those that it is run with by default.
func scratch(t *testing.T, image, path string, args ...string) string {
	t.Helper()
	dir, name := t.TempDir(), filepath.Base(path)
	if err := os.Link(path, filepath.Join(dir, name)); err != nil {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o755); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	recipe := "FROM scratch\nCOPY " + name + " /" + name + "\nUSER 65532:65532\nENTRYPOINT [\"/" + name + "\"]\n"
	if len(args) > 0 {
		recipe += `CMD ["` + strings.Join(args, `", "`) + "\"]\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(recipe), 0o600); err != nil {
		t.Fatal(err)
	}
	engine.Docker(t, "build", "--tag", image, dir)
	return image
}
