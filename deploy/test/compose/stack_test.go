// Package compose runs deploy/compose on the container engine, breaks its
// upstream in every way that the engine has, and looks at what clients saw and
// at what Prometheus and Grafana say of it.
package compose

import (
	"context"
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/deploy/test/engine"
)

// stack is what `docker compose up` started, until the test ends.
type stack struct {
	project string
	file    string // in deploy/compose
	env     []string
	ids     map[string]string // of containers, by service
	bases   map[string]string // their addresses, as URLs
}

// command is the compose at hand: the plugin of docker, or the older program.
func command() []string {
	if exec.Command("docker", "compose", "version").Run() == nil {
		return []string{"docker", "compose"}
	}
	return []string{"docker-compose"}
}

// compose runs one of its commands, which has to work.
func (s *stack) compose(t *testing.T, env []string, args ...string) string {
	t.Helper()
	c := s.command(args...)
	return engine.Run(t, append(append([]string{}, s.env...), env...), c[0], c[1:]...)
}

func (s *stack) command(args ...string) []string {
	return append(append(command(), "--project-name", s.project, "--file", "deploy/compose/"+s.file), args...)
}

// up makes the images and starts everything as the file says. The sidecar's
// image is in env: one compiled outside, which TestImageIsReproducible compares
// with what the file would build. The image of the service example is built by
// the file.
func up(t *testing.T, file, example string, standIns, env []string) *stack {
	t.Helper()
	s := &stack{project: engine.Name("compose"), file: file, ids: map[string]string{}, bases: map[string]string{}, env: append(env, "HEALTH_INTERVAL=1s")}
	engine.Run(t, nil, "bash", append([]string{"deploy/test/stand-ins"}, standIns...)...)
	s.compose(t, nil, "build", example)
	engine.Cleanup(t, func() { s.down(t) })
	s.compose(t, nil, "up", "--detach", "--no-build")
	for _, service := range strings.Fields(s.compose(t, nil, "config", "--services")) {
		s.find(t, service)
		s.awaitHealth(t, service)
	}
	return s
}

// find learns the service's container, which is another after each change of it.
func (s *stack) find(t *testing.T, service string) {
	t.Helper()
	const label = "label=com.docker.compose."
	id := engine.Docker(t, "ps", "--quiet", "--filter", label+"project="+s.project, "--filter", label+"service="+service)
	if id == "" {
		t.Fatalf("%s does not run", service)
	}
	port := ":3000"
	if service == "prometheus" {
		port = ":9090"
	}
	s.ids[service], s.bases[service] = id, "http://"+engine.Address(t, id)+port
}

func (s *stack) awaitHealth(t *testing.T, service string) {
	t.Helper()
	engine.Await(t, "health of "+service, func() bool {
		return engine.Inspect(t, s.ids[service], "{{.State.Health.Status}}") == "healthy"
	})
}

// down leaves nothing behind, whatever became of the test.
func (s *stack) down(t *testing.T) {
	if t.Failed() {
		t.Log(s.compose(t, nil, "logs", "--no-color", "--tail=30"))
	}
	ctx, cancel := context.WithTimeout(context.Background(), engine.Patience)
	defer cancel()
	c := s.command("down", "--volumes", "--timeout", "1")
	var err error
	for range 3 { // a test that is cut short may be making a container just now
		if _, err = engine.Try(ctx, t, s.env, c[0], c[1:]...); err == nil {
			return
		}
	}
	t.Error(err)
}

// ask is a question to a service of the stack, answered in JSON.
func (s *stack) ask(t *testing.T, method, service, path string, into any) {
	t.Helper()
	status, body := engine.Ask(method, s.bases[service]+path)
	if status != http.StatusOK {
		t.Fatalf("%s %s of %s: %d %s", method, path, service, status, body)
	}
	if err := json.Unmarshal([]byte(body), into); err != nil {
		t.Fatalf("%s of %s: %v in %s", path, service, err, body)
	}
}

// seen is what the clients counted.
type seen struct {
	Answered   map[string]int64
	Unanswered int64
	Since      struct {
		Sent     int64
		Slowest  float64 `json:"slowest_seconds"`
		Failures []struct {
			Method, Path, Why string
			Began             time.Time
			Took              float64 `json:"took_seconds"`
			Code              int
			Safe              bool
		}
	} `json:"since_resume"`
}

// clients asks them for their counts, to pause or to go on.
func (s *stack) clients(t *testing.T, method, path string) seen {
	t.Helper()
	var got seen
	s.ask(t, method, "client", path, &got)
	return got
}

// good are the requests answered by 200.
func (s seen) good() (n int64) {
	for k, c := range s.Answered {
		if strings.HasSuffix(k, " 200") {
			n += c
		}
	}
	return n
}

// awaitTraffic waits until two seconds' worth of requests more went well.
func (s *stack) awaitTraffic(t *testing.T) {
	t.Helper()
	const more = 40
	from := s.clients(t, http.MethodGet, "/stats").good()
	engine.Await(t, "traffic", func() bool { return s.clients(t, http.MethodGet, "/stats").good() >= from+more })
}
