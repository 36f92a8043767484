package docs

import (
	"fmt"
	"strings"
)

// term is a word of the project. It means one thing in code, settings, metrics and docs.
type term struct {
	word    string
	meaning string
	avoid   []string // earlier words for it, or words used elsewhere
}

// terms are in the order of a request's path, followed by related terms.
var terms = []term{
	{"client", "Who sends requests to retryproxy.", []string{"caller", "callers"}},
	{"upstream", "Where retryproxy sends requests: one service, with one or several endpoints.", nil},
	{"endpoint", "One address of an upstream.", nil},
	{"route", "A set of requests and the settings that apply to them. Requests that match no route use the route `default`.", nil},
	{"request", "What a client asked for, once.", nil},
	{"attempt", "Each time a request is sent upstream. Every request has at least one attempt, unless it is answered without being sent.", nil},
	{"retry", "Every attempt after the first.", nil},
	{"recovered", "The outcome of a request that failed first and got a good response by a retry.", []string{"rescued"}},
	{"hedge", "A second attempt beside one that is slow. The first good response is used.", nil},
	{"response, headers", "What an upstream sends for an attempt.", nil},
	{"outcome", "What became of a request. Each request has exactly one.", nil},
	{"backoff", "The wait before a retry. Jitter is its random part.", nil},
	{"retry budget", "How many retries an upstream may get in proportion to its requests.", nil},
	{"circuit breaker", "Stops sending to an upstream that fails as a whole. **Closed**: healthy, requests pass. **Open**: failing, nothing is sent but probes. **Half-open**: a probe is on its way. **Slow start**: the upstream is back and gets more requests step by step.", []string{"gate", "gates"}},
	{"probe", "An attempt, a connection or a GET of a path that finds out whether an upstream is back.", nil},
	{"queue", "Requests that wait for the circuit breaker, the concurrency limit or the rate limit.", nil},
	{"fail fast", "Answer at once instead of queueing.", nil},
	{"concurrency limit", "How many attempts may be in flight to an upstream. A **permit** is the right to have one.", nil},
	{"rate limit", "How many attempts per second an upstream may get.", []string{"quota", "quotas"}},
	{"rate-limit pause", "The wait that a 429 asks for, shared by all requests with the same key.", []string{"cool-down", "cool-downs", "cooldown"}},
	{"client-side throttling", "Answering requests locally while the upstream rejects nearly all ([SRE book](https://sre.google/sre-book/handling-overload/), chapter 21).", nil},
	{"outlier ejection", "Leaving out an endpoint that fails while others do not.", nil},
	{"retry buffer", "Memory in which request bodies and failed responses are kept for retries.", []string{"replay memory"}},
	{"layered retries", "Retries of a request that is itself a retry of another proxy or client.", nil},
	{"fallback", "What responds if all attempts failed.", nil},
	{"dry run", "A route that sends each request once and only counts the retries it would make.", nil},
	{"fault injection", "Failures made on purpose, to try settings out.", nil},
	{"drain", "The time from SIGTERM to the end, in which requests in flight are answered.", nil},
	{"inbound, outbound", "Position of retryproxy: in front of the application, or in front of a remote service.", nil},
}

// Glossary returns docs/reference/glossary.md.
func Glossary() string {
	var b strings.Builder
	b.WriteString(note)
	b.WriteString("# Glossary\n\nOne word per thing, in settings, metrics, logs, pages and code.\n\n| Word | Meaning |\n|---|---|\n")
	for _, t := range terms {
		fmt.Fprintf(&b, "| %s | %s |\n", t.word, t.meaning)
	}
	return b.String()
}
