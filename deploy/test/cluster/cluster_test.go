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

// before are the traces that were there when the tests started the cluster.
var before []string

// TestMain ends the cluster, if the tests started it. Then nothing of it may be left.
func TestMain(m *testing.M) {
	code := m.Run()
	engine.AtEnd()
	if before != nil {
		if lines := left(before); len(lines) > 0 {
			fmt.Fprintf(os.Stderr, "left by the cluster:\n%s\n", strings.Join(lines, "\n"))
			code = 1
		}
	}
	os.Exit(code)
}

// work is where cluster.sh keeps everything.
func work() string {
	if dir := os.Getenv("WORK"); dir != "" {
		return dir
	}
	return filepath.Join(os.TempDir(), "retryproxy-cluster")
}

// kubectl runs a command that has to work, in no namespace.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return engine.Run(t, nil, "bash", append([]string{script, "kubectl"}, args...)...)
}

// namespace is a test's own, with what it deploys.
type namespace struct{ name string }

// kubectl runs a command that has to work, in the test's namespace.
func (n *namespace) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return kubectl(t, append([]string{"--namespace", n.name}, args...)...)
}

// try is kubectl for a command that may fail. It returns all that it prints.
func (n *namespace) try(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := engine.Try(context.Background(), t, nil, "bash", append([]string{script, "kubectl", "--namespace", n.name}, args...)...)
	if err != nil {
		out = err.Error()
	}
	return out, err
}

// up starts the cluster and loads the images, with the first call of the process.
var up = struct {
	sync.Once
	done bool
}{}

func startCluster(t *testing.T) {
	t.Helper()
	up.Do(func() {
		if _, err := engine.Try(context.Background(), t, nil, "bash", script, "kubectl", "get", "--raw", "/readyz"); err != nil {
			down := exec.Command("bash", filepath.Join(engine.Root(t), script), "down")
			engine.Last(func() {
				if out, err := down.CombinedOutput(); err != nil {
					fmt.Fprintf(os.Stderr, "down: %v: %s", err, out)
				}
			})
			before = traces()
			began := time.Now()
			engine.Run(t, nil, "bash", script, "up")
			t.Logf("the cluster was up after %.0f s", time.Since(began).Seconds())
		}
		engine.Run(t, nil, "bash", append([]string{script, "load"}, images(t)...)...)
		up.done = true
	})
	if !up.done {
		t.Fatal("the cluster could not be started")
	}
}

// prepare returns a namespace that enforces the Pod Security Standard restricted, in a
// cluster that has the images.
func prepare(t *testing.T) *namespace {
	t.Helper()
	engine.Asked(t, "cluster")
	startCluster(t)
	n := &namespace{engine.Name("test")}
	n.create(t)
	return n
}

// create makes the namespace, and ends it with the test.
func (n *namespace) create(t *testing.T) {
	t.Helper()
	kubectl(t, "create", "namespace", n.name)
	kubectl(t, "label", "namespace", n.name, "pod-security.kubernetes.io/enforce=restricted")
	engine.Cleanup(t, func() {
		if t.Failed() {
			n.tell(t)
		}
		if out, err := engine.Try(context.Background(), t, nil, "bash", script, "kubectl", "delete", "namespace", n.name); err != nil {
			t.Errorf("delete the namespace: %v: %s", err, out)
		}
	})
}

// tell logs what a person would look at after a failure.
func (n *namespace) tell(t *testing.T) {
	for _, what := range [][]string{{"get", "pods,endpointslices", "-o", "wide"}, {"get", "events", "--sort-by", "lastTimestamp"}} {
		out, _ := n.try(t, what...)
		t.Logf("%v:\n%s", what, out)
	}
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

// ready waits for the end of a Deployment's rollout.
func (n *namespace) ready(t *testing.T, deployment string) {
	t.Helper()
	n.kubectl(t, "rollout", "status", "deployment/"+deployment, "--timeout=5m")
}

// rolledOut waits for the end of a Deployment's rollout, and for the Pods of
// before to be gone.
func (n *namespace) rolledOut(t *testing.T, deployment string) {
	t.Helper()
	n.ready(t, deployment)
	engine.Await(t, "end of the Pods of before", func() bool {
		pods := n.kubectl(t, "get", "pods", "-l", "app="+deployment, "-o", `jsonpath={range .items[*]}{.metadata.deletionTimestamp}{end}`)
		return pods == ""
	})
}

// pod returns the address of a Pod that the selector finds and that is not about to end.
func (n *namespace) pod(t *testing.T, selector string) (name, address string) {
	t.Helper()
	out := n.kubectl(t, "get", "pods", "-l", selector, "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.status.podIP} {.metadata.deletionTimestamp}{"\n"}{end}`)
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 2 {
			return f[0], f[1]
		}
	}
	t.Fatalf("no Pod %s: %s", selector, out)
	return "", ""
}

// address is a Service's virtual one, which kube-proxy leads to Pods.
func (n *namespace) address(t *testing.T, service string) string {
	t.Helper()
	return n.kubectl(t, "get", "service", service, "-o", "jsonpath={.spec.clusterIP}")
}

// answers waits for status 200 and returns the body.
func answers(t *testing.T, url string) (body string) {
	t.Helper()
	engine.Await(t, "answer of "+url, func() bool {
		var status int
		status, body = engine.Get(url)
		return status == http.StatusOK
	})
	return body
}

// post orders something and wants 200.
func post(t *testing.T, url string) string {
	t.Helper()
	status, body := engine.Ask(http.MethodPost, url)
	if status != http.StatusOK {
		t.Fatalf("POST %s: %d %s", url, status, body)
	}
	return body
}

// load is requests at a steady pace from this machine, each on a connection of its own.
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
