package page

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/retryproxy/retryproxy/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served is a stage behind a server.
func served(t *testing.T) (*stage, *httptest.Server) {
	t.Helper()
	s := newStage()
	server := httptest.NewServer(s.Page)
	t.Cleanup(func() {
		s.Close()
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return s, server
}

func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // a test's
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

// Everything that the page and its scripts name is there, and everything that
// is there is named: the page works without a network.
func TestPageIsWhole(t *testing.T) {
	_, server := served(t)
	named := regexp.MustCompile(`(?:href|src)="(/[^"#]*)"|from '(/[^']*)'|'(/page/icon[^']*)'`)
	seen := map[string]bool{}
	for todo := []string{"/"}; len(todo) > 0; todo = todo[1:] {
		path := todo[0]
		if seen[path] {
			continue
		}
		seen[path] = true
		response, body := get(t, server.URL+path)
		if response.StatusCode != 200 || response.Header.Get("Content-Type") == "" || response.Header.Get("Content-Security-Policy") != policyField {
			t.Errorf("%s: %d %v", path, response.StatusCode, response.Header)
		}
		if strings.Contains(strings.ReplaceAll(body, "http://www.w3.org/", ""), "://") {
			t.Errorf("%s names another server", path)
		}
		for _, m := range named.FindAllStringSubmatch(body, -1) {
			todo = append(todo, m[1]+m[2]+m[3])
		}
	}
	delete(seen, "")
	files, err := assets.ReadDir("assets")
	if err != nil || len(files) != len(seen) {
		t.Errorf("%d files, %d of them used, %v", len(files), len(seen), err)
	}
}

func TestNothingElseIsServed(t *testing.T) {
	_, server := served(t)
	for _, path := range []string{"/page/", "/page/none.js", "/page/../page.go", "/page/assets/main.js", "/main.js", "/page/main.js/", "/index.html"} {
		if response, _ := get(t, server.URL+path); response.StatusCode != 404 {
			t.Errorf("%s: %d", path, response.StatusCode)
		}
	}
	response, err := http.Post(server.URL+"/page/state.json", "application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != 405 {
		t.Errorf("POST: %d", response.StatusCode)
	}
}

func TestMarkupHasNothingInline(t *testing.T) {
	text, err := assets.ReadFile("assets/index.html")
	if err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`(?i)<script>|<style|\son\w+=|\sstyle=|javascript:`).FindString(string(text)); found != "" {
		t.Errorf("%s, which the policy forbids", found)
	}
	scripts, err := assets.ReadDir("assets")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range scripts {
		text, err := assets.ReadFile("assets/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if found := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|DOMParser`).FindString(string(text)); found != "" {
			t.Errorf("%s: %s makes markup of text", f.Name(), found)
		}
	}
}

func TestStateAsJSON(t *testing.T) {
	s, server := served(t)
	s.request("a", policy.OutcomeFailFast, time.Millisecond)
	failure := ended("/p", time.Now(), time.Second, policy.OutcomeFailFast, 1)
	failure.RequestID = []byte("be241928")
	s.Keep(failure)
	response, body := get(t, server.URL+"/page/state.json")
	var got Snapshot
	if err := json.Unmarshal([]byte(body), &got); err != nil || response.Header.Get("Content-Type") != "application/json" {
		t.Fatal(err, response.Header)
	}
	if len(got.State.Routes) != 1 || got.State.Routes[0].Last.Failed != 1 || paths(got.Requests.Failed) != "/p" || got.State.Process.Position != "inbound" {
		t.Errorf("%+v", got)
	}
	for _, want := range []string{`"request_id":"be241928"`, `"error":"status 503"`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
}

// stream reads events.
type stream struct {
	t     *testing.T
	body  io.ReadCloser
	lines *bufio.Scanner
}

func listen(t *testing.T, url string) *stream {
	t.Helper()
	response, err := http.Get(url + "/page/events")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != 200 || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", response.StatusCode, response.Header)
	}
	s := &stream{t, response.Body, bufio.NewScanner(response.Body)}
	s.lines.Buffer(nil, 1<<20)
	return s
}

// next gives the next event; "" at the end.
func (s *stream) next() (name, data string) {
	for s.lines.Scan() {
		switch line := s.lines.Text(); {
		case line == "":
			return name, data
		case strings.HasPrefix(line, "event: "):
			name = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			data = line[len("data: "):]
		default:
			s.t.Errorf("unexpected line %q", line)
		}
	}
	return "", ""
}

func TestEventsBringTheStateAndRequestsThatChanged(t *testing.T) {
	s, server := served(t)
	events := listen(t, server.URL)
	var names []string
	for range 4 {
		if len(names) == 3 {
			s.Keep(ended("/late", time.Now(), time.Second, policy.OutcomeFailFast, 0))
		}
		name, data := events.next()
		names = append(names, name)
		if !json.Valid([]byte(data)) {
			t.Errorf("%s: %q", name, data)
		}
	}
	if want := []string{"state", "requests", "state", "state"}; !slices.Equal(names, want) {
		t.Fatalf("%q", names)
	}
	for {
		name, data := events.next()
		if name == "requests" {
			if !strings.Contains(data, `"/late"`) {
				t.Error(data)
			}
			return
		}
		if name != "state" {
			t.Fatalf("%q", name)
		}
	}
}

// The server's time limits are for requests and answers that end.
func TestStreamOutlastsTheServersTimeLimits(t *testing.T) {
	const limit = 2 * time.Second
	s := newStage()
	server := httptest.NewUnstartedServer(s.Page)
	server.Config.ReadTimeout, server.Config.WriteTimeout = limit, limit
	server.Start()
	t.Cleanup(func() {
		s.Close()
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	events := listen(t, server.URL)
	for began := time.Now(); time.Since(began) < 2*limit; {
		if name, _ := events.next(); name == "" {
			t.Fatalf("it ended after %v", time.Since(began))
		}
	}
}

func TestStreamsAreBoundedAndEndWithThePage(t *testing.T) {
	s, server := served(t)
	var open []*stream
	for range maxClients {
		open = append(open, listen(t, server.URL))
	}
	response, _ := get(t, server.URL+"/page/events")
	if response.StatusCode != 503 || response.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: %d", response.StatusCode)
	}
	_ = open[0].body.Close() // it gives its place back, once the server has seen it
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if len(s.clients) < maxClients {
			break
		}
	}
	open[0] = listen(t, server.URL)
	s.Close()
	s.Close()
	for _, o := range open {
		for name := "state"; name != ""; {
			name, _ = o.next()
		}
	}
}
