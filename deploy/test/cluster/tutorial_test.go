package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// counted is how often a status came, in what `uniq -c` prints.
func counted(out, status string) (n int) {
	line := regexp.MustCompile(`(?m)^\s*(\d+) ` + status + `$`)
	if found := line.FindStringSubmatch(out); found != nil {
		n, _ = strconv.Atoi(found[1])
	}
	return n
}

// tutorialSteps is the number of blocks of commands in the tutorial.
const tutorialSteps = 5

// The tutorial, every command as it stands there, in a namespace that
// enforces the Pod Security Standard restricted: a user sees what the page promises.
func TestTheTutorialDoesWhatItSays(t *testing.T) {
	n := prepare(t)
	standIn(t, "nginx", "nginxinc/nginx-unprivileged:1.28")
	u := n.user(t)
	page := readPage(t, tutorial)
	if err := os.WriteFile(filepath.Join(u.directory, "app.yaml"), []byte(page.blocks(t, "yaml")[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	var outputs []string
	began := time.Now()
	for _, commands := range page.blocks(t, "sh") {
		out := u.run(t, commands)
		t.Logf("$ %s\n%s", commands, out)
		outputs = append(outputs, out)
	}
	fmt.Printf("the tutorial took %.0f s\n", time.Since(began).Seconds())
	if len(outputs) != tutorialSteps {
		t.Fatalf("%d blocks of commands, want %d", len(outputs), tutorialSteps)
	}
	if good, bad := counted(outputs[1], "200"), counted(outputs[1], "503"); good+bad != 200 || bad == 0 {
		t.Errorf("without retries: %d good, %d failed", good, bad)
	}
	if good := counted(outputs[3], "200"); good != 200 {
		t.Errorf("with retries: %d of 200 good", good)
	}
	recovered := regexp.MustCompile(`retryproxy_outcomes_total\{outcome="recovered".*\} (\d+)`).FindStringSubmatch(outputs[3])
	if recovered == nil || recovered[1] == "0" {
		t.Errorf("no recovered requests: %s", outputs[3])
	}
	if left := n.kubectl(t, "get", "deployments,services"); strings.Contains(left, "web") {
		t.Errorf("left: %s", left)
	}
}
