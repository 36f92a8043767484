// Command llm proves what RETRYPROXY_PROFILE=llm promises, with the vendors' own
// Go clients (openai-go and anthropic-sdk-go) as clients.
//
//	make bench-llm
//	cd bench/llm && go run . --proxy ../../bin/retryproxy --through direct,retryproxy
//
// A fake provider (provider.go) speaks the wire of OpenAI and that of Anthropic. It has
// rate limits of requests and tokens, and it fails on purpose. It knows what it has sent
// and asked for, so it is the judge of each row:
//
//   - early: requests that came before the end of the wait that the provider asked for. If the
//     provider asks for two, such as 700 ms and 1 s of OpenAI's headers, the shorter counts
//   - billed twice: jobs of which more than one generation completed
//   - futile: requests of a job after the provider had said that the account is used up
//   - failed: jobs that the client saw fail before their first content, other than by a cut
//   - changed: responses that the client got otherwise than they were sent
//   - 429s: responses that a rate limit rejected; those that are a fault do not count
//   - token limit used: what share of it was used while jobs came
//
// retryproxy learns the rate limits (RETRYPROXY_RATE_LIMIT=auto), as one process and as a fleet of 50
// that share through a redis-server.
//
// A job whose response was lost after its generation had been billed is not counted as
// failed, but by itself: nobody can repeat it without the risk of a second bill.
//
// The program has a module of its own. The clients would bring the modules of Azure and AWS
// and some twenty others into the module graph of cmd/retryproxy. After a change of the other
// go.mod, "go mod tidy" may be due here.
//
// HAProxy repeats what it can repeat without the risk of a second bill (through.go). Added latency
// is the median of differences between pairs of streams, one by that way and one directly.
//
// A minute of the vendors' limits is a second here, and a generation of ten seconds
// takes a sixth of one. Everything is on loopback. The figures of the load are flags.
//
// Exit codes: 0 the rows of retryproxy keep every promise; 1 one does not, or a row
// could not be played; 2 wrong arguments.
package main
