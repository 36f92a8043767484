package compose

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/deploy/test/engine"
)

var fenced = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// shim is a directory whose docker does `docker compose` with the project that runs, by whichever
// compose is here, and everything else itself.
func (s *stack) shim(t *testing.T) string {
	t.Helper()
	docker, err := exec.LookPath("docker")
	if err != nil {
		t.Fatal(err)
	}
	compose := strings.Join(command(), " ")
	if command()[0] == "docker" {
		compose = docker + " compose"
	}
	script := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = compose ] || exec %s \"$@\"\nshift\nexec %s --project-name %s \"$@\"\n", docker, compose, s.project)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "docker"), []byte(script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return dir
}

// followsThePage runs docs/tutorials/compose.md after its first block, which is what up does: each
// command works, and clients are served again after each block.
func (s *stack) followsThePage(t *testing.T) {
	all := fenced.FindAllStringSubmatch(read(t, "docs/tutorials/compose.md"), -1)
	if len(all) < 2 || !strings.Contains(all[0][1], "docker compose up --detach --build") {
		t.Fatalf("docs/tutorials/compose.md begins with %q", all)
	}
	path := "PATH=" + s.shim(t) + ":" + os.Getenv("PATH")
	here := strings.NewReplacer("compose_back", s.project+"_back", "localhost:8080", engine.Address(t, s.ids["inbound-a"])+":8080")
	s.clients(t, http.MethodPost, "/resume")
	for _, block := range all[1:] {
		text := here.Replace(block[1])
		if strings.Contains(text, "docker compose down") {
			continue // s.down does it, and looks whether anything is left
		}
		began := time.Now()
		out := engine.Run(t, append(append([]string{}, s.env...), path), "bash", "-euo", "pipefail", "-c", "cd deploy/compose\n"+text)
		t.Logf("%.1f s\n$ %s\n%s", time.Since(began).Seconds(), text, out)
		for _, service := range []string{"upstream", "inbound-a"} {
			s.find(t, service)
			s.awaitHealth(t, service)
		}
		s.awaitTraffic(t)
	}
}
