package cluster

import (
	"context"
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

	"github.com/retryproxy/retryproxy/deploy/test/engine"
)

const script = "deploy/test/cluster/cluster.sh"

// kubectl runs a command that has to work, in the test's namespace.
func (n *namespace) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return engine.Run(t, nil, "bash", append([]string{script, "kubectl", "--namespace", n.name}, args...)...)
}

// namespace is a test's own, with what it deploys.
type namespace struct{ name string }

// prepare gives a namespace in a cluster that has the images. The cluster is
// ended after the test if the test started it.
func prepare(t *testing.T) *namespace {
	t.Helper()
	engine.Asked(t, "cluster")
	if _, err := engine.Try(context.Background(), t, nil, "bash", script, "kubectl", "get", "--raw", "/readyz"); err != nil {
		engine.Cleanup(t, func() {
			if out, err := exec.Command("bash", filepath.Join(engine.Root(t), script), "down").CombinedOutput(); err != nil {
				t.Errorf("down: %v: %s", err, out)
			}
		})
		engine.Run(t, nil, "bash", script, "up")
	}
	engine.Run(t, nil, "bash", script, "load", engine.Image(t), application(t))
	n := &namespace{engine.Name("test")}
	engine.Run(t, nil, "bash", script, "kubectl", "create", "namespace", n.name)
	engine.Cleanup(t, func() {
		if t.Failed() {
			for _, what := range [][]string{{"get", "pods,endpointslices", "-o", "wide"}, {"get", "events", "--sort-by", "lastTimestamp"}} {
				out, _ := engine.Try(context.Background(), t, nil, "bash", append([]string{script, "kubectl", "--namespace", n.name}, what...)...)
				t.Logf("%v:\n%s", what, out)
			}
		}
		if out, err := engine.Try(context.Background(), t, nil, "bash", script, "kubectl", "delete", "namespace", n.name); err != nil {
			t.Errorf("delete the namespace: %v: %s", err, out)
		}
	})
	return n
}

// application builds the tests' own application into an image.
func application(t *testing.T) string {
	t.Helper()
	const image = "retryproxy-application:test"
	dir := t.TempDir()
	engine.Run(t, []string{"CGO_ENABLED=0"}, "go", "build", "-buildvcs=false", "-o", dir+"/application", "./deploy/test/cluster/application")
	if err := os.WriteFile(dir+"/Dockerfile", []byte("FROM scratch\nCOPY application /application\nUSER 65532:65532\nENTRYPOINT [\"/application\"]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	engine.Docker(t, "build", "--tag", image, dir)
	return image
}

// apply applies manifests.
func (n *namespace) apply(t *testing.T, manifests string) {
	t.Helper()
	n.kubectl(t, "apply", "-f", write(t, manifests))
}

func write(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "manifests.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// rolledOut waits for the end of a Deployment's rollout, and for the Pods of
// before to be gone.
func (n *namespace) rolledOut(t *testing.T, deployment string) {
	t.Helper()
	n.kubectl(t, "rollout", "status", "deployment/"+deployment, "--timeout=5m")
	engine.Await(t, "end of the Pods of before", func() bool {
		pods := n.kubectl(t, "get", "pods", "-l", "app="+deployment, "-o", `jsonpath={range .items[*]}{.metadata.deletionTimestamp}{end}`)
		return pods == ""
	})
}

// address is a Service's virtual one, which kube-proxy leads to Pods.
func (n *namespace) address(t *testing.T, service string) string {
	t.Helper()
	return n.kubectl(t, "get", "service", service, "-o", "jsonpath={.spec.clusterIP}")
}

// load is requests at a steady pace, each on a connection of its own.
type load struct {
	stop   chan struct{}
	done   chan struct{}
	asking sync.WaitGroup

	began time.Time

	mu       sync.Mutex // guards what follows
	sent     int
	problems []string
}

func startLoad(url string, perSecond int) *load {
	l := &load{stop: make(chan struct{}), done: make(chan struct{}), began: time.Now()}
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	go func() {
		defer close(l.done)
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for {
			select {
			case <-l.stop:
				l.asking.Wait()
				return
			case <-tick.C:
				l.asking.Go(func() { l.note(ask(client, url)) })
			}
		}
	}()
	return l
}

// ask gives what was wrong, "" where the response is good.
func ask(client *http.Client, url string) string {
	response, err := client.Get(url)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Sprintf("%d %s", response.StatusCode, strings.TrimSpace(string(body)))
	}
	return ""
}

func (l *load) note(problem string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	if problem != "" {
		l.problems = append(l.problems, fmt.Sprintf("after %.1f s: %s", time.Since(l.began).Seconds(), problem))
	}
}

// step notes what is done to the cluster now.
func (l *load) step(t *testing.T, what string) {
	t.Helper()
	t.Logf("after %.1f s: %s", time.Since(l.began).Seconds(), what)
}

// end waits for the last response and wants all of them to be good.
func (l *load) end(t *testing.T, least int) {
	t.Helper()
	close(l.stop)
	<-l.done
	for _, problem := range l.problems[:min(len(l.problems), 20)] {
		t.Log(problem)
	}
	t.Logf("%d of %d requests failed", len(l.problems), l.sent)
	if len(l.problems) > 0 || l.sent < least {
		t.Errorf("%d of %d requests failed, want none of at least %d", len(l.problems), l.sent, least)
	}
}
