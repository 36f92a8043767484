//go:build linux

package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/internal/needs"
)

// kind says what a test does with a block.
type kind int

const (
	runs     kind = iota // every command ends with 0
	prints               // console: and prints what the page shows
	serves               // becomes ready, and ends with 0 when it is told to
	settings             // retryproxy check accepts the settings
	measures             // minutes of work: the commands are parsed by what they call, and not done
	belongs              // the test named by with reads the page and runs the block
)

// how says what is done with one block.
type how struct {
	kind kind
	with string // settings: more of them; belongs: the file of the test
}

// page is a page with commands, and what is done with each of its blocks, in order.
type page struct {
	path   string
	tree   bool   // runs in a copy of the tree
	given  string // what the page says that its reader has
	blocks []how
}

const (
	upstream = "LISTEN=127.0.0.1:3000 example flaky >upstream.log 2>&1 &\n"
	pictures = "cmd/retryproxyctl/pages_test.go"
	running  = upstream + "export RETRYPROXY_UPSTREAM=http://localhost:3000\nretryproxy >retryproxy.log 2>&1 &\n" +
		"until curl -sf -o ready.txt http://localhost:9797/readyz; do sleep 0.1; done\n"
	prometheus = "touch p.yaml\nprometheus --config.file=p.yaml --storage.tsdb.path=data --enable-feature=exemplar-storage >p.log 2>&1 &\n" +
		"until curl -sf -o ready.txt http://localhost:9090/-/ready; do sleep 0.1; done\n"
	// noCluster has the application of the tutorial, and a kubectl that renders and reads what it is
	// to apply. deploy/test/cluster applies the same on a Kubernetes.
	noCluster = `sed -n '/^...yaml$/,/^[^a-z -]*$/p' docs/tutorials/kubernetes.md | grep -vE '^[^a-z -]' | sed 's,^\( *\)image: .*,&\n\1env: [{name: API_URL\, value: "http://api.example.com"}],' >app.yaml
kubectl() {
  case "$*" in
  "apply -f -") grep '^kind:' >applied.txt ;;
  "apply -k "*) kustomize build "$3" >applied.txt ;;
  "kustomize "*) kustomize build "$2" ;;
  "rollout status "*) ;;
  *) echo "kubectl $*: not known here" >&2; return 1 ;;
  esac
}
`
	reports = "RETRYPROXY_ROUTES=reports RETRYPROXY_ROUTE_REPORTS_PATH=/reports/*"
)

// all are n blocks of one kind.
func all(n int, h how) (same []how) {
	for range n {
		same = append(same, h)
	}
	return same
}

var pages = []page{
	{path: "README.md", tree: true, blocks: []how{{kind: prints}, {kind: serves}}},
	{path: "CONTRIBUTING.md", tree: true, blocks: []how{{kind: measures}}},
	{path: "docs/tutorials/api.md", tree: true, blocks: []how{{kind: runs}, {kind: runs}, {kind: prints}, {kind: runs}, {kind: prints}, {kind: prints}, {kind: prints}, {kind: runs}}},
	{path: "docs/tutorials/compose.md", blocks: all(7, how{belongs, "deploy/test/compose/page_test.go"})},
	{path: "docs/tutorials/kubernetes.md", blocks: all(5, how{belongs, "deploy/test/cluster/page_test.go"})},
	{path: "docs/how-to/kubernetes.md", tree: true, given: noCluster, blocks: []how{{kind: runs}, {belongs, "deploy/test/cluster/page_test.go"}}},
	{path: "docs/how-to/kubernetes-sidecar.md", tree: true, given: noCluster, blocks: all(2, how{kind: runs})},
	{path: "docs/how-to/kubernetes-webhook.md", blocks: all(4, how{belongs, "deploy/test/cluster/page_test.go"})},
	{path: "docs/how-to/backoff.md", tree: true, given: running, blocks: []how{{kind: runs}, {kind: runs}, {settings, reports}, {kind: runs}, {kind: settings}}},
	{path: "docs/how-to/fallback.md", blocks: []how{{kind: serves}, {kind: prints}}},
	{path: "docs/how-to/fleet.md", blocks: []how{{kind: settings}}},
	{path: "docs/how-to/hedging.md", blocks: []how{{settings, reports}, {kind: measures}}},
	{path: "docs/how-to/rate-limit.md", given: upstream, blocks: []how{{kind: serves}, {kind: runs}, {kind: settings}, {kind: settings}}},
	{path: "docs/how-to/image.md", blocks: all(2, how{belongs, "deploy/test/image/page_test.go"})},
	{path: "docs/how-to/llm.md", given: "echo 'X-Api-Key: a' | tee first.txt second.txt >both.txt\n",
		blocks: []how{{kind: serves}, {kind: runs}, {settings, "RETRYPROXY_PROFILE=llm"}, {settings, "RETRYPROXY_PROFILE=llm"}}},
	{path: "docs/reference/logs.md", given: upstream, blocks: []how{{kind: serves}, {kind: runs}, {kind: runs}, {kind: runs}}},
	{path: "docs/how-to/migrating.md", given: upstream, blocks: []how{{kind: serves}, {kind: runs}}},
	{path: "docs/how-to/traces.md", given: upstream, blocks: []how{{kind: serves}, {kind: prints}}},
	{path: "docs/how-to/try-out.md", given: running, blocks: []how{{settings, reports}, {kind: runs}}},
	{path: "docs/explanation/backoff.md", tree: true, blocks: append(all(8, how{belongs, pictures}), how{kind: prints})},
	{path: "docs/explanation/storm.md", tree: true, blocks: []how{{kind: measures}, {kind: measures}, {belongs, pictures}, {kind: prints}}},
	{path: "docs/reference/admin.md", given: running, blocks: []how{{kind: runs}}},
	{path: "docs/reference/queries.md", given: prometheus, blocks: []how{{kind: runs}}},
}

// Every block of commands is run by this test or by one that reads the same page.
func TestEveryCommandIsRun(t *testing.T) {
	known := map[string]page{}
	for _, p := range pages {
		known[p.path] = p
	}
	for _, path := range documents(t) {
		all, p := blocks(t, path), known[path]
		delete(known, path)
		if len(all) != len(p.blocks) {
			t.Errorf("%s has %d blocks of commands, %d are in the table: say for each what runs it", path, len(all), len(p.blocks))
		} else if len(all) > 0 {
			t.Run(path, func(t *testing.T) {
				if !p.tree { // those in the tree build programs, which the others use afterwards
					t.Parallel()
				}
				p.run(t, all)
			})
		}
	}
	for path := range known {
		t.Errorf("%s is in the table and not in the tree", path)
	}
}

// documents are all pages.
func documents(t *testing.T) (all []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			path, err := filepath.Rel(root, f)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, path)
		}
	}
	return all
}

func (p page) run(t *testing.T, all []block) {
	needs.Program(t, "curl", "curl")
	needs.Program(t, "ip", "iproute2")
	needs.Program(t, "jq", "jq")
	if p.given == prometheus {
		needs.Program(t, "prometheus", "prometheus")
	}
	out, err := session(t, p.tree, p.script(all))
	if err != nil {
		t.Fatalf("%v after:\n%s", err, out)
	}
	for i, b := range all {
		switch p.blocks[i].kind {
		case prints:
			for j, step := range b.steps() {
				if got := outputOf(out, mark(i, j)); !shows(step.output, got) {
					t.Errorf("$ %s\nprints\n%s\nand the page shows\n%s", step.command, got, step.output)
				}
			}
		case measures:
			measurement(t, b)
		case belongs:
			reads(t, p.blocks[i].with, p.path)
		default:
		}
	}
}

// reads fails unless the file of another test names the page, from which it has to take the block.
func reads(t *testing.T, test, path string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, test))
	if err != nil {
		t.Error(err)
	} else if !strings.Contains(string(text), path) {
		t.Errorf("%s does not read %s", test, path)
	}
}
