package compose

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// docker compose calls a container compose-upstream-1, docker-compose 1
// compose_upstream_1.
func TestTheDocsNameNoContainerAsOnlyOneComposeDoes(t *testing.T) {
	for _, doc := range []string{"docs/tutorials/compose.md", "docs/reference/page.md", "docs/how-to/image.md", "README.md"} {
		if found := regexp.MustCompile(`\bcompose[-_][a-z-]+[-_][0-9]\b`).FindString(read(t, doc)); found != "" {
			t.Errorf("%s names %s; docker compose ps -q finds it in every version", doc, found)
		}
	}
}

func TestBuildingTheStackKeepsTheImageOfMakeImage(t *testing.T) {
	file, makefile := read(t, "deploy/compose/docker-compose.yml"), read(t, "Makefile")
	ours := regexp.MustCompile(`(?m)^IMAGE \?= (\S+)$`).FindStringSubmatch(makefile)
	if ours == nil {
		t.Fatal("the Makefile names no image")
	}
	if strings.Contains(file, ours[1]) {
		t.Errorf("docker compose up --build makes %s, as make image does", ours[1])
	}
}

func TestTheReadmeShowsNoFiguresOfATestRun(t *testing.T) {
	if found := regexp.MustCompile(`DONE [0-9]+ tests|✓|ok +github.com/`).FindString(read(t, "README.md")); found != "" {
		t.Errorf("README.md has %q, which is out of date with the next test", found)
	}
}
