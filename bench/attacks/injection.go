package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// injectionAttacks try to forge lines of the log. The labels of metrics are closed sets
// (TestLabelsAreClosed in metrics).
var injectionAttacks = []attack{
	{name: "log injection", conns: 8, bound: baseMemory + 8*(perSlow+perHead), why: "8 requests with heads of 64 KiB", prepare: logInjection},
}

// secret must not appear in the log.
const secret = "SECRET-7f3a9c"

// hostile is inserted everywhere: line ends, plain and escaped, ends of strings, JSON, terminal sequences,
// invalid UTF-8, and characters that hide or reverse text.
var hostile = []string{
	"\"}\r\n{\"level\":\"info\",\"msg\":\"forged\",\"forged\":1}", "\n{\"msg\":\"forged\"}\n", "\r", "\x00", "\x1b[2J\x1b[31m", "\x7f", "\x08\x08", "\x0b\x0c", "\x85", "\x9b31m",
	`","msg":"forged","forged":"`, `"}{"msg":"forged"}`, `\`, `\"`, `\n`, `\u000a{"msg":"forged"}`, `\u001b[31m`, "%0d%0a%7b%22msg%22:%22forged%22%7d", "%00", "%1b[31m",
	"\u2028\u2029", "\u202e", "\u200b", "\ufeff", "\xff\xfe", "\xc0\x8a", "\xed\xa0\x80", "\xf4\x90\x80\x80", "'", "`", "$(reboot)", "${jndi:ldap://x}", "<script>", "{}", "[]", "\t", strings.Repeat("A", 300),
}

// spell returns a few of hostile, with letters between them.
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

// harmless removes what the parser refuses, so that the request gets past it.
var harmless = strings.NewReplacer("\r", "", "\n", "", "\x00", "", "\x1b", "", "\x7f", "", "\x08", "", "\x0b", "", "\x0c", "", " ", "", "\t", "")

// token returns a random method or header name.
func token(r *rand.Rand) string {
	const chars = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	b := make([]byte, 1+r.IntN(20))
	for i := range b {
		b[i] = chars[r.IntN(len(chars))]
	}
	return string(b)
}

// evil returns a spell that a header value may have.
func evil(r *rand.Rand) string { return harmless.Replace(spell(r)) }

// fresh returns a randomly seeded source.
func fresh() *rand.Rand { return rand.New(rand.NewPCG(rand.Uint64(), 1)) }

func logInjection(st *stage) error {
	st.spec.Log = st.TempDir() + "/log"
	st.set("RETRYPROXY_ACCESS_LOG=true")
	got := func(*http.Response) { st.Count(answers, 1) }
	st.strike = func(s *strike) error {
		r := fresh()
		if r.IntN(4) == 0 {
			return s.askByHTTP2(func() ([]string, string) { return logRequest2(r), "" }, got)
		}
		var b strings.Builder
		for range 20 { // of which one that is refused ends the connection
			b.WriteString(logRequest(r) + "\r\n")
		}
		return s.ask(s.addr, b.String()+"GET /ok HTTP/1.1\r\nHost: bench.test\r\nConnection: close\r\n\r\n", time.Second, got)
	}
	st.judge, st.needs = st.judgeLog, needs{answers: 20}
	st.route("bad", "/bad/*", func(w http.ResponseWriter, _ *http.Request) { // an upstream that says the same things
		evil := spell(fresh())
		switch rand.IntN(4) {
		case 0:
			raw(w, "HTTP/1.1 503 "+evil+"\r\nX: "+evil+"\r\nContent-Length: 0\r\n\r\n")
		case 1:
			raw(w, evil+"\r\n\r\n")
		default:
			raw(w, "HTTP/1.1 200 "+harmless.Replace(evil)+"\r\n"+askedField+": x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		}
	}, "BREAKER=off", "CONCURRENCY_LIMIT=off", "MAX_RETRIES=1", "BACKOFF=none")
	return nil
}

func logRequest(r *rand.Rand) string {
	say := func() string {
		if r.IntN(60) == 0 {
			return spell(r)
		}
		return evil(r)
	}
	path := []string{"/log/", "/bad/"}[r.IntN(2)]
	return fmt.Sprintf("%s %s%s?token=%s HTTP/1.1\r\nHost: bench.test\r\nAuthorization: Bearer %s\r\nCookie: %s\r\nX-Request-Id: %s\r\nUser-Agent: %s\r\nX-Forwarded-For: %s\r\nTraceparent: %s\r\n%s: %s\r\n",
		token(r), path, say(), secret, secret, secret, say(), say(), say(), say(), token(r), say())
}

func logRequest2(r *rand.Rand) []string {
	return []string{":method", token(r), ":scheme", "http", ":authority", "bench.test", ":path", "/log/" + evil(r) + "?" + secret,
		"authorization", secret, "x-request-id", evil(r), "user-agent", evil(r), strings.ToLower(token(r)), evil(r)}
}

// longestLine has room for a path of 1 KiB with every byte escaped to two, an id of 128 bytes, and the rest.
const longestLine = 4 * kib

// requestKeys are the keys of lines about requests.
var requestKeys = []string{"attempts", "duration_seconds", "host", "level", "method", "msg", "outcome", "path", "peer", "reason", "request_bytes", "request_id", "response_bytes", "route", "status", "time", "trace_id", "user_agent"}

func (st *stage) judgeLog(*rig.Proxy) string {
	const lines = "lines of requests"
	longest := 0
	f, err := os.Open(st.spec.Log)
	if err == nil {
		defer f.Close()
		for r := bufio.NewReaderSize(f, mib); err == nil; {
			var line []byte
			if line, err = r.ReadBytes('\n'); err != nil {
				break // the last one may be in flight
			}
			longest = max(longest, len(line))
			is, wrong := judgeLine(bytes.TrimSuffix(line, []byte("\n")))
			if wrong != nil {
				st.Add("%v: %.300q", wrong, line)
			}
			if is {
				st.Count(lines, 1)
			}
		}
	}
	if err != io.EOF {
		st.Add("the log cannot be read: %v", err)
	}
	st.AtLeast(st.Counted(answers)/2, lines)
	return fmt.Sprintf("%d lines of requests, each one JSON object with its keys, the longest of %d bytes; %d lines with something wrong", st.Counted(lines), longest, st.N())
}

// judgeLine reports whether a line is about a request, and what is wrong with it.
func judgeLine(line []byte) (ofRequest bool, wrong error) {
	switch {
	case len(line) > longestLine:
		return false, fmt.Errorf("a line of %d bytes", len(line))
	case !utf8.Valid(line):
		return false, fmt.Errorf("bytes that are no text")
	case bytes.ContainsFunc(line, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }):
		return false, fmt.Errorf("a control character")
	case bytes.Contains(line, []byte(secret)):
		return false, fmt.Errorf("a secret")
	}
	keys, msg, err := keysOf(line)
	switch {
	case err != nil:
		return false, err
	case msg == "forged" || slices.Contains(keys, "forged"):
		return false, fmt.Errorf("a line that the proxy did not write")
	case msg != "request" && msg != "request given up":
		return false, nil
	}
	slices.Sort(keys)
	if !slices.Equal(keys, requestKeys) {
		return true, fmt.Errorf("the keys %s", strings.Join(keys, " "))
	}
	return true, nil
}

// keysOf returns the keys of a JSON object, duplicates included, and the value of msg.
func keysOf(line []byte) (keys []string, msg string, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, "", fmt.Errorf("no JSON object (%v)", err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, "", err
		}
		keys = append(keys, key.(string))
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, "", err
		}
		if key == "msg" {
			_ = json.Unmarshal(value, &msg)
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, "", err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, "", fmt.Errorf("more than one object")
	}
	return keys, msg, nil
}
