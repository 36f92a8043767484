package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/deploy/test/engine"
)

// page is one of docs/*/kubernetes*.md: what tests run of it is taken from it.
type page struct{ text string }

const tutorial = "docs/tutorials/kubernetes.md"

// part is a section of a page with one block of commands, which tests run.
type part struct{ page, heading string }

var (
	createCertificate = part{"docs/how-to/kubernetes-webhook.md", "## Create its certificate"}
	applyOverlay      = part{"docs/how-to/kubernetes-webhook.md", "## Apply the overlay"}
	askForSidecar     = part{"docs/how-to/kubernetes-webhook.md", "## Ask for a sidecar"}
	helmGateway       = part{"docs/how-to/kubernetes.md", "## Install the gateway"}
	helmWebhook       = part{"docs/how-to/kubernetes-webhook.md", "## Install the webhook with Helm"}
)

// commands are those of the part.
func (p part) commands(t *testing.T) string {
	t.Helper()
	all := readPage(t, p.page).section(t, p.heading).blocks(t, "sh")
	if len(all) != 1 {
		t.Fatalf("%s, %s: %d blocks of commands, want 1", p.page, p.heading, len(all))
	}
	return all[0]
}

// This needs no cluster: it fails as soon as a page changes under the tests that need one.
func TestThePagesHaveWhatTheTestsRun(t *testing.T) {
	if blocks := readPage(t, tutorial).blocks(t, "sh"); len(blocks) != tutorialSteps {
		t.Errorf("%s: %d blocks of commands, want %d", tutorial, len(blocks), tutorialSteps)
	}
	failing, err := os.ReadFile(filepath.Join(engine.Root(t), "deploy", "nginx", "failing.conf"))
	if err != nil {
		t.Fatal(err)
	}
	indented := regexp.MustCompile("(?m)^").ReplaceAllString(strings.TrimSpace(string(failing)), "    ")
	if app := readPage(t, tutorial).blocks(t, "yaml")[0]; !strings.Contains(app, "\n"+indented+"\n---\n") {
		t.Errorf("%s: its nginx is not configured by deploy/nginx/failing.conf", tutorial)
	}
	for _, p := range []part{createCertificate, applyOverlay, askForSidecar, helmGateway, helmWebhook} {
		p.commands(t)
	}
}

func readPage(t *testing.T, path string) page {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(engine.Root(t), path))
	if err != nil {
		t.Fatal(err)
	}
	return page{string(content)}
}

// section is what stands below the heading, until the next one of the same level or above.
func (p page) section(t *testing.T, heading string) page {
	t.Helper()
	level := heading[:strings.IndexByte(heading, ' ')]
	_, rest, found := strings.Cut(p.text, "\n"+heading+"\n")
	if !found {
		t.Fatalf("the page has no heading %q", heading)
	}
	for n := 2; n <= len(level); n++ {
		rest, _, _ = strings.Cut(rest, "\n"+strings.Repeat("#", n)+" ")
	}
	return page{rest}
}

var fenced = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

// blocks are the fenced blocks of a language.
func (p page) blocks(t *testing.T, language string) (all []string) {
	t.Helper()
	for _, found := range fenced.FindAllStringSubmatch(p.text, -1) {
		if found[1] == language {
			all = append(all, found[2])
		}
	}
	if len(all) == 0 {
		t.Fatalf("no block of %s in:\n%s", language, p.text)
	}
	return all
}

// user is somebody who follows the page: with a copy of the tree's deploy, the programs
// installed, and kubectl set to the namespace.
type user struct {
	directory, namespace string
	environment          []string
}

func (n *namespace) user(t *testing.T) *user {
	t.Helper()
	u := &user{directory: t.TempDir(), namespace: n.name}
	root := engine.Root(t)
	engine.Run(t, nil, "cp", "-r", filepath.Join(root, "deploy"), filepath.Join(u.directory, "deploy"))
	config := filepath.Join(u.directory, "kubeconfig")
	engine.Run(t, nil, "cp", filepath.Join(work(), "etc", "admin.conf"), config)
	u.environment = append(os.Environ(), "KUBECONFIG="+config, "HOME="+u.directory,
		"PATH="+programs(t)+":"+filepath.Join(work(), "bin")+":"+os.Getenv("PATH"))
	u.run(t, "kubectl config set-context --current --namespace "+n.name)
	return u
}

// try runs a script as the page has it.
func (u *user) try(commands string) (string, error) {
	c := exec.Command("bash", "-euo", "pipefail", "-c", commands)
	c.Dir, c.Env = u.directory, u.environment
	out, err := c.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (u *user) run(t *testing.T, commands string) string {
	t.Helper()
	out, err := u.try(commands)
	if err != nil {
		t.Fatalf("%v in:\n%s\n%s", err, commands, out)
	}
	return out
}

// edit replaces text in a file of the copy, as the page tells a user to do.
func (u *user) edit(t *testing.T, file, old, by string) {
	t.Helper()
	path := filepath.Join(u.directory, file)
	content, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(content), old) {
		t.Fatalf("%s: no %q: %v", file, old, err)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(content), old, by)), 0o600); err != nil {
		t.Fatal(err)
	}
}
