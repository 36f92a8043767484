package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// injectionAttacks write what is to be read as something else: into the log, and into the metrics.
var injectionAttacks = []attack{
	{name: "log injection", conns: 8, bound: atEase + 8*(perSlow+perHead), why: "8 requests with heads of 64 KiB", prepare: logInjection},
	{name: "metric label injection", conns: 8, bound: atEase + 8*perSlow + perSeries, why: "8 requests and the series of every status that the upstream was made to answer", prepare: labelInjection},
}

// perSeries is what 25 statuses of ten methods take, with the answers to scrapes.
const perSeries = 8 * mib

// secret is in no line of the log.
const secret = "SECRET-7f3a9c"

// hostile is what is put in everywhere: ends of lines, as they are and escaped, ends of
// strings, JSON, terminal sequences, bytes that are no UTF-8, and what hides or turns text.
var hostile = []string{
	"\"}\r\n{\"level\":\"info\",\"msg\":\"forged\",\"forged\":1}", "\n{\"msg\":\"forged\"}\n", "\r", "\x00", "\x1b[2J\x1b[31m", "\x7f", "\x08\x08", "\x0b\x0c", "\x85", "\x9b31m",
	`","msg":"forged","forged":"`, `"}{"msg":"forged"}`, `\`, `\"`, `\n`, `\u000a{"msg":"forged"}`, `\u001b[31m`, "%0d%0a%7b%22msg%22:%22forged%22%7d", "%00", "%1b[31m",
	"\u2028\u2029", "\u202e", "\u200b", "\ufeff", "\xff\xfe", "\xc0\x8a", "\xed\xa0\x80", "\xf4\x90\x80\x80", "'", "`", "$(reboot)", "${jndi:ldap://x}", "<script>", "{}", "[]", "\t", strings.Repeat("A", 300),
}

// spell is a few of them, and as much of what is allowed.
func spell(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(4) {
		b.WriteString(hostile[r.IntN(len(hostile))])
		b.WriteString(string(rune('a' + r.IntN(26))))
	}
	if r.IntN(50) == 0 {
		b.WriteString(strings.Repeat(hostile[r.IntN(len(hostile))], 200))
	}
	if r.IntN(200) == 0 {
		b.WriteString(strings.Repeat("\xff", 55*kib))
	}
	return b.String()
}

// harmless takes out what ends a head, so that more than the parser is tried.
var harmless = strings.NewReplacer("\r", "", "\n", "", "\x00", "", "\x1b", "", "\x7f", "", "\x08", "", "\x0b", "", "\x0c", "", " ", "", "\t", "")

// token is a method or the name of a field.
func token(r *rand.Rand) string {
	const chars = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	b := make([]byte, 1+r.IntN(20))
	for i := range b {
		b[i] = chars[r.IntN(len(chars))]
	}
	return string(b)
}

// aside is a route with an upstream of its own, whose failures are not the others'.
func (st *stage) aside(h http.Handler, env ...string) error {
	addr, err := st.serve(h)
	if err != nil {
		return err
	}
	st.env = append(st.env, "RETRYPROXY_ROUTES=bad", "RETRYPROXY_ROUTE_BAD_PATH=/bad/*", "RETRYPROXY_ROUTE_BAD_UPSTREAM=http://"+addr,
		"RETRYPROXY_ROUTE_BAD_BREAKER=off", "RETRYPROXY_ROUTE_BAD_CONCURRENCY_LIMIT=off", "RETRYPROXY_ROUTE_BAD_MAX_RETRIES=1", "RETRYPROXY_ROUTE_BAD_BACKOFF=none")
	st.env = append(st.env, env...)
	return nil
}

func logInjection(st *stage) error {
	g := &logStage{}
	dir, err := st.tempDir()
	if err != nil {
		return err
	}
	g.file = dir + "/log"
	st.by = []string{"sh", "-c", `exec "$@" 2>` + g.file, "sh"}
	st.env = append(st.env, "RETRYPROXY_ACCESS_LOG=true", "RETRYPROXY_LOG_LEVEL=debug", "RETRYPROXY_GAVE_UP_LOG_PER_MINUTE=1000000")
	// An upstream that says the same things.
	err = st.aside(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		evil := spell(rand.New(rand.NewPCG(rand.Uint64(), 1)))
		switch rand.IntN(4) {
		case 0:
			raw(w, "HTTP/1.1 503 "+evil+"\r\nX: "+evil+"\r\nContent-Length: 0\r\n\r\n")
		case 1:
			raw(w, evil+"\r\n\r\n")
		default:
			raw(w, "HTTP/1.1 200 "+harmless.Replace(evil)+"\r\n"+askedField+": x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		}
	}))
	var seed atomic.Uint64
	hear := func(h *heard) { g.answers.Add(1) }
	st.strike = func(s *strike) error {
		r := rand.New(rand.NewPCG(seed.Add(1), 2))
		if r.IntN(4) > 0 {
			return s.ask(s.addr, pipeline(r, 20, logRequest), time.Second, hear)
		}
		return s.askByHTTP2(func() ([]string, string) { return logRequest2(r), "" }, hear)
	}
	st.judge = g.judge
	return err
}

// pipeline is n requests over one connection; one that is refused ends it.
func pipeline(r *rand.Rand, n int, one func(r *rand.Rand) string) string {
	var b strings.Builder
	for range n {
		b.WriteString(one(r) + "\r\n")
	}
	b.WriteString("GET /ok HTTP/1.1\r\nHost: bench.test\r\nConnection: close\r\n\r\n")
	return b.String()
}

func logRequest(r *rand.Rand) string {
	say := func() string {
		if r.IntN(60) == 0 {
			return spell(r)
		}
		return harmless.Replace(spell(r))
	}
	path := []string{"/log/", "/bad/"}[r.IntN(2)]
	return fmt.Sprintf("%s %s%s?token=%s HTTP/1.1\r\nHost: bench.test\r\nAuthorization: Bearer %s\r\nCookie: %s\r\nX-Request-Id: %s\r\nUser-Agent: %s\r\nX-Forwarded-For: %s\r\nTraceparent: %s\r\n%s: %s\r\n",
		token(r), path, say(), secret, secret, secret, say(), say(), say(), say(), token(r), say())
}

func logRequest2(r *rand.Rand) []string {
	return []string{":method", token(r), ":scheme", "http", ":authority", "bench.test", ":path", "/log/" + harmless.Replace(spell(r)) + "?" + secret,
		"authorization", secret, "x-request-id", harmless.Replace(spell(r)), "user-agent", harmless.Replace(spell(r)), strings.ToLower(token(r)), harmless.Replace(spell(r))}
}
