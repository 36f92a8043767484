package exchange

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/proxy/settings"
)

// example is a request, what its upstream does, and what comes of it.
type example struct {
	name    string
	change  func(s *served, c *settings.Config)
	request string
	steps   []step
	story   string // see served.note; "closed" and "reset" are the end of the client's connection
	client  string // what the client gets
}

// all makes several changes.
func all(changes ...func(s *served, c *settings.Config)) func(s *served, c *settings.Config) {
	return func(s *served, c *settings.Config) {
		for _, change := range changes {
			change(s, c)
		}
	}
}

// then has the client do more after its request, see served.more.
func then(more ...any) func(s *served, c *settings.Config) {
	return func(s *served, _ *settings.Config) { s.more = more }
}

var (
	durations = regexp.MustCompile(`[0-9.]+(m|µ|n)?s\b`)
	dials     = regexp.MustCompile(`(^|, )_ refused`)
)

// outline returns the story so far without times, which are random where there is jitter, and without dials that
// were refused, whose number is.
func (s *served) outline() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	story := durations.ReplaceAllString(strings.Join(s.story, ", "), "_")
	s.story = nil
	return strings.TrimPrefix(dials.ReplaceAllString(story, ""), ", ")
}

func runAll(t *testing.T, all []example) {
	t.Helper()
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, c.steps, c.change, func(s *served) {
				s.serve(c.request)
				s.wants(c.story, c.client)
			})
		})
	}
}

// got is a response as the client gets it, with more headers, each a line.
func got(status int, body string, attempts int, lines ...string) string {
	lines = append([]string{fmt.Sprintf("HTTP/1.1 %d X", status), fmt.Sprintf("Content-Length: %d", len(body)), fmt.Sprintf("X-Retryproxy-Attempts: %d", attempts)}, lines...)
	return strings.Join(append(lines, "", body), "\r\n")
}

// own is a response of ours because of reason, with more headers, each a line.
func own(status int, text string, attempts int, reason string, lines ...string) string {
	body := fmt.Sprintf("{\"error\":\"retryproxy: %s\",\"status\":%d,\"reason\":%q,\"attempts\":%d,\"request_id\":\"id\"}\n", text, status, reason, attempts)
	lines = append([]string{
		fmt.Sprintf("HTTP/1.1 %d %s", status, http.StatusText(status)), "Content-Type: application/json", fmt.Sprintf("Content-Length: %d", len(body)),
		fmt.Sprintf("X-Retryproxy-Attempts: %d", attempts), because(reason),
	}, lines...)
	return strings.Join(append(lines, "", body), "\r\n")
}

// because is the header with the reason why there was no retry.
func because(reason string) string { return "X-Retryproxy-Reason: " + reason }
