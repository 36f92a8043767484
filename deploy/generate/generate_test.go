package main

import (
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/internal/needs"
	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/policy"
)

const root = "../.."

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestGeneratedFilesAreCurrent(t *testing.T) {
	files, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if read(t, f.path) != string(f.content) {
			t.Errorf("%s is stale; run make dashboard", f.path)
		}
	}
}

func TestFilesAreWritten(t *testing.T) {
	tree := t.TempDir()
	for _, path := range []string{rulesPath, dashboardPath, prometheusRulePath, chartRulesPath} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(tree, path)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(tree, rulesPath), []byte(read(t, rulesPath)), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if code := run([]string{tree}, io.Discard, &out); code != 0 || out.Len() > 0 {
		t.Errorf("%d %q", code, out.String())
	}
	for _, path := range []string{dashboardPath, prometheusRulePath, chartRulesPath} {
		if content, err := os.ReadFile(filepath.Join(tree, path)); err != nil || string(content) != read(t, path) {
			t.Errorf("%s: %v, or not as in the tree", path, err)
		}
	}
}

// What Prometheus itself, the operator and the scrape configuration add.
var scrapeLabels = []string{"namespace", "job", "instance", "cluster", "pod", "le", "alertname", "alertstate", "severity", "version", "revision", "goversion"}

// Process metrics of client_golang that are used.
var foreign = map[string]bool{"process_cpu_seconds_total": true, "process_resident_memory_bytes": true}

var (
	metricName = regexp.MustCompile(`\b(?:retryproxy|process|go)_[a-z0-9_]+\b`)
	selector   = regexp.MustCompile(`\b((?:retryproxy|process|go)_[a-z0-9_]+)\{([^}]*)\}`)
	matcher    = regexp.MustCompile(`([a-z_]+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	grouping   = regexp.MustCompile(`\b(?:by|on)\s*\(([^)]*)\)`)
)

// reference is every metric of the binary with its labels, histograms by the
// names of their series.
func reference() map[string][]string {
	known := map[string][]string{}
	for _, r := range metrics.Reference() {
		if r.Type == metrics.Histogram {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				known[r.Name+suffix] = r.Labels
			}
			continue
		}
		known[r.Name] = r.Labels
	}
	return known
}

// lint is what is wrong with a query: a metric that the binary does not export,
// a label that it does not have, a value that the label never takes.
func lint(query string) (wrong []string) {
	known := reference()
	grouped := map[string]bool{}
	for _, name := range metricName.FindAllString(withoutStrings(query), -1) {
		if _, ok := known[name]; !ok && !foreign[name] {
			wrong = append(wrong, "no metric "+name)
		}
		for _, l := range known[name] {
			grouped[l] = true
		}
	}
	for _, s := range selector.FindAllStringSubmatch(query, -1) {
		for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
			if !slices.Contains(known[s[1]], m[1]) && !slices.Contains(scrapeLabels, m[1]) {
				wrong = append(wrong, s[1]+" has no label "+m[1])
			}
			wrong = append(wrong, lintValue(m[1], m[2], m[3])...)
		}
	}
	for _, g := range grouping.FindAllStringSubmatch(query, -1) {
		for l := range strings.SplitSeq(g[1], ",") {
			if l = strings.TrimSpace(l); !grouped[l] && !slices.Contains(scrapeLabels, l) {
				wrong = append(wrong, "grouped by "+l+", which none of its metrics has")
			}
		}
	}
	return wrong
}

func withoutStrings(query string) string {
	return regexp.MustCompile(`"[^"]*"`).ReplaceAllString(query, `""`)
}

// lintValue: each alternative of a match on a closed set matches a member.
func lintValue(label, operator, value string) (wrong []string) {
	sets := map[string][]string{"state": {"closed", "open", "half_open", "slow_start"}}
	for _, o := range policy.AllOutcomes() {
		sets["outcome"] = append(sets["outcome"], o.String())
	}
	for _, r := range policy.AllReasons() {
		sets["reason"] = append(sets["reason"], r.String())
	}
	members, closed := sets[label]
	if !closed || strings.HasPrefix(value, "$") || value == "" {
		return nil
	}
	alternatives := []string{regexp.QuoteMeta(value)}
	if strings.HasSuffix(operator, "~") {
		alternatives = strings.Split(value, "|")
	}
	for _, a := range alternatives {
		full, err := regexp.Compile("^(?:" + a + ")$")
		if err != nil || !slices.ContainsFunc(members, full.MatchString) {
			wrong = append(wrong, label+" is never "+a)
		}
	}
	return wrong
}

func TestDashboardAsksForWhatThereIs(t *testing.T) {
	all := queries()
	if len(all) < 40 {
		t.Fatalf("only %d queries found", len(all))
	}
	for _, q := range all {
		for _, wrong := range lint(fill.Replace(q)) {
			t.Errorf("%s\n  in %s", wrong, q)
		}
	}
}

func TestRulesAskForWhatThereIs(t *testing.T) {
	asked := map[string]bool{}
	rules := regexp.MustCompile(`(?m)^ +- (?:alert|record): `).Split(read(t, rulesPath), -1)[1:]
	for _, rule := range rules {
		expression, prose, _ := strings.Cut(rule, "annotations:")
		for _, wrong := range lint(recorded.ReplaceAllString(expression, "0")) {
			t.Errorf("%s\n  in %s", wrong, expression)
		}
		for _, name := range metricName.FindAllString(expression, -1) {
			asked[name] = true
		}
		for _, name := range metricName.FindAllString(prose, -1) { // a histogram is named there as a whole
			if !slices.ContainsFunc(metrics.Reference(), func(r metrics.Row) bool { return r.Name == name }) {
				t.Errorf("a runbook names %s, which there is not", name)
			}
		}
	}
	if len(rules) < 15 || len(asked) < 10 {
		t.Errorf("%d rules ask for %d metrics", len(rules), len(asked))
	}
}

// The queries of the documentation ask for what there is, and their answers on known series are right.
func TestQueriesOfTheDocumentationAnswer(t *testing.T) {
	page, tests := read(t, queriesPage), read(t, queriesTests)
	for _, block := range queryBlock.FindAllStringSubmatch(page, -1) {
		for _, wrong := range lint(block[2]) {
			t.Errorf("%s\n  in %s", wrong, block[2])
		}
	}
	filled, err := queryTests(tests, page)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(filled, "- expr: |"); n < 15 {
		t.Errorf("only %d queries found", n)
	}
	known := reference()
	for _, s := range regexp.MustCompile(`series: '(\w+)\{(.*)\}'`).FindAllStringSubmatch(tests, -1) {
		want := slices.Clone(known[s[1]])
		if strings.HasSuffix(s[1], "_bucket") {
			want = append(want, "le")
		}
		var got []string
		for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
			if m[1] != "instance" {
				got = append(got, m[1])
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s is no series of the binary, which has the labels %q", s[0], want)
		}
	}
	needs.Program(t, "promtool", "prometheus")
	file := filepath.Join(t.TempDir(), "queries.test.yaml")
	if err := os.WriteFile(file, []byte(filled), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("promtool", "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestQueriesWithoutATestAreFound(t *testing.T) {
	const page = "```promql one\nup\n```\n\n```promql two\nup\n  + up\n```\n"
	for tests, want := range map[string]string{
		"  - expr: $one\n  - expr: $two\n":                   "",
		"  - expr: $one\n":                                   `without a test: ["two"]`,
		"  - expr: $one\n  - expr: $two\n  - expr: $three\n": `but not there: ["three"]`,
	} {
		got, err := queryTests(tests, page)
		if want == "" && (err != nil || got != "  - expr: |\n      up\n  - expr: |\n      up\n        + up\n") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %q, %v", tests, got, err)
		}
	}
	if _, err := queryTests("", "```promql\nup\n```\n"); err == nil {
		t.Error("a query without a name")
	}
}

// Every outcome is a success or a failure to clients, or none of ours; the rules, the dashboard and
// the documentation agree about which.
func TestOutcomesAreJudgedAlike(t *testing.T) {
	set := func(text, operator string) *regexp.Regexp {
		m := regexp.MustCompile(`outcome` + operator + `"([^"]*)"`).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("no outcome%s in %s", operator, text)
		}
		return regexp.MustCompile("^(?:" + m[1] + ")$")
	}
	_, rules, _ := strings.Cut(read(t, rulesPath), "retryproxy:failed:ratio_rate5m")
	if set(rules, "=~").String() != set(failed, "=~").String() || set(rules, "!~").String() != set(counted, "!~").String() {
		t.Error("the rules and the dashboard disagree")
	}
	page := read(t, queriesPage)
	good, bad, notOurs := set(page, "=~"), set(failed, "=~"), set(counted, "!~")
	if set(page, "!~").String() != notOurs.String() {
		t.Error("the documentation and the dashboard disagree")
	}
	for _, o := range policy.AllOutcomes() {
		n := 0
		for _, s := range []*regexp.Regexp{good, bad, notOurs} {
			if s.MatchString(o.String()) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s is in %d of the three sets", o, n)
		}
	}
}

// recorded are the rules' own series.
var recorded = regexp.MustCompile(`retryproxy:[a-z0-9:_]+`)

// Each alert says what it is, what it means and what to do, with labels that it has.
func TestAlertsHaveRunbooks(t *testing.T) {
	alerts := strings.Split(read(t, rulesPath), "- alert: ")[1:]
	if len(alerts) < 10 {
		t.Fatalf("%d alerts", len(alerts))
	}
	for _, a := range alerts {
		name, rest, _ := strings.Cut(a, "\n")
		rest, _, _ = strings.Cut(rest, "\n  - name:")
		for _, part := range []string{"severity: ", "summary: ", "description: ", "runbook: |", "1. "} {
			if !strings.Contains(rest, part) {
				t.Errorf("%s has no %s", name, strings.Trim(part, ": |"))
			}
		}
		kept := map[string]bool{}
		for _, g := range grouping.FindAllStringSubmatch(rest[:strings.Index(rest, "annotations:")], -1) {
			for l := range strings.SplitSeq(g[1], ",") {
				kept[strings.TrimSpace(l)] = true
			}
		}
		if len(kept) == 0 { // not grouped: the labels of the series itself, or of a recording
			kept = map[string]bool{"namespace": true, "job": true, "route": true, "instance": true, "kind": true, "name": true}
		}
		for _, m := range regexp.MustCompile(`\$labels\.([a-z_]+)`).FindAllStringSubmatch(rest, -1) {
			if !kept[m[1]] {
				t.Errorf("%s tells of a label %s, which it does not have (%v)", name, m[1], slices.Sorted(maps.Keys(kept)))
			}
		}
	}
}

// The runbooks name settings that exist.
func TestRunbooksNameWhatThereIs(t *testing.T) {
	settings := read(t, "docs/reference/settings.md")
	for _, name := range regexp.MustCompile(`RETRYPROXY_[A-Z_]+`).FindAllString(read(t, rulesPath), -1) {
		if !strings.Contains(settings, "`"+name+"`") {
			t.Errorf("no setting %s", name)
		}
	}
}

func TestLintRefuses(t *testing.T) {
	for query, want := range map[string]string{
		`rate(retryproxy_request_total[5m])`:                                 "no metric retryproxy_request_total",
		`rate(retryproxy_request_duration_seconds[5m])`:                      "no metric retryproxy_request_duration_seconds",
		`retryproxy_requests_total{upstream="x"}`:                            "retryproxy_requests_total has no label upstream",
		`sum by (upstream) (retryproxy_requests_total)`:                      "grouped by upstream, which none of its metrics has",
		`retryproxy_outcomes_total{outcome=~"success|gave_in_.*"}`:           "outcome is never gave_in_.*",
		`retryproxy_breaker_state{state="shut"}`:                             "state is never shut",
		`retryproxy_outcomes_total{outcome=~"gave_up_.*|fail_fast",job="a"}`: "",
	} {
		got := strings.Join(lint(query), "; ")
		if got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}

// Panels lie side by side and below each other, none over another.
func TestPanelsDoNotOverlap(t *testing.T) {
	taken := map[[2]int]string{}
	ids := map[int]bool{}
	for _, p := range lay(rows) {
		if ids[p.ID] || p.GridPos.X+p.GridPos.W > columns {
			t.Errorf("%s: id %d, at %+v", p.Title, p.ID, p.GridPos)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, ok := taken[[2]int{x, y}]; ok {
					t.Fatalf("%s lies over %s", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}
