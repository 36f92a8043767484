package image

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/deploy/test/engine"
)

var fenced = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// commands are those of docs/how-to/image.md, one each, without comments.
func commands(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/how-to/image.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, block := range fenced.FindAllStringSubmatch(string(text), -1) {
		joined := strings.ReplaceAll(block[1], "\\\n", " ")
		for line := range strings.Lines(joined) {
			line, _, _ = strings.Cut(line, " #")
			all = append(all, strings.TrimSpace(line))
		}
	}
	if len(all) < 4 {
		t.Fatalf("only %d commands in docs/how-to/image.md", len(all))
	}
	return all
}

// Every command of docs/how-to/image.md, in order. Only ports differ, which may be in use here, and
// the container runs in the background.
func TestTheCommandsOfThePage(t *testing.T) {
	engine.Asked(t, "image")
	engine.Run(t, nil, "bash", "deploy/test/stand-ins", "golang")
	for _, command := range commands(t) {
		run, isRun := strings.CutPrefix(command, "docker run ")
		if !isRun {
			engine.Run(t, nil, "bash", "-c", command)
			continue
		}
		name := engine.Name("page")
		engine.Cleanup(t, func() { engine.Remove(t, name) })
		run = strings.NewReplacer("--rm ", "", "-p 8080:8080", "-p 127.0.0.1:0:8080", "-p 127.0.0.1:9797:9797", "-p 127.0.0.1:0:9797").Replace(run)
		engine.Run(t, nil, "bash", "-c", "docker run --detach --name "+name+" "+run)
		base := "http://" + engine.Address(t, name) + ":9797"
		engine.Await(t, "readiness", func() bool { status, _ := engine.Get(base + "/readyz"); return status == 200 })
		if status, body := engine.Get(base + "/config"); status != 200 {
			t.Errorf("/config from outside: %d %s; the page lets Docker's networks read it", status, body)
		}
	}
}
