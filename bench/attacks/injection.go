package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
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

// evil is one of these in what can be one line of a field.
func evil(r *rand.Rand) string { return harmless.Replace(spell(r)) }

// fresh is a source that nothing follows from.
func fresh() *rand.Rand { return rand.New(rand.NewPCG(rand.Uint64(), 1)) }

// bad is a route with an upstream of its own, whose failures are not the others'.
func (st *stage) bad(h http.HandlerFunc) error {
	return st.route("bad", "/bad/*", h, "BREAKER=off", "CONCURRENCY_LIMIT=off", "MAX_RETRIES=1", "BACKOFF=none")
}

// mix strikes with n requests over a connection of HTTP/1.1, of which one that is refused ends it, or over one of HTTP/2. It counts the answers.
func (st *stage) mix(n int, one func(r *rand.Rand) string, two func(r *rand.Rand) []string) func(s *strike) error {
	hear := func(*http.Response) { st.Count(answers, 1) }
	return func(s *strike) error {
		r := fresh()
		if r.IntN(4) == 0 {
			return s.askByHTTP2(func() ([]string, string) { return two(r), "" }, hear)
		}
		var b strings.Builder
		for range n {
			b.WriteString(one(r) + "\r\n")
		}
		b.WriteString("GET /ok HTTP/1.1\r\nHost: bench.test\r\nConnection: close\r\n\r\n")
		return s.ask(s.addr, b.String(), time.Second, hear)
	}
}

func logInjection(st *stage) error {
	dir, err := st.TempDir()
	if err != nil {
		return err
	}
	st.spec.Log = dir + "/log"
	st.set("RETRYPROXY_ACCESS_LOG=true")
	st.strike, st.judge, st.needs = st.mix(20, logRequest, logRequest2), st.judgeLog, needs{answers: 20}
	return st.bad(func(w http.ResponseWriter, _ *http.Request) { // an upstream that says the same things
		evil := spell(fresh())
		switch rand.IntN(4) {
		case 0:
			raw(w, "HTTP/1.1 503 "+evil+"\r\nX: "+evil+"\r\nContent-Length: 0\r\n\r\n")
		case 1:
			raw(w, evil+"\r\n\r\n")
		default:
			raw(w, "HTTP/1.1 200 "+harmless.Replace(evil)+"\r\n"+askedField+": x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		}
	})
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

// longestLine is a path of 1 KiB, in which a byte may take two, an id of 128, and the rest.
const longestLine = 4 * kib

// requestKeys are those of the access log, and of a request given up.
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

// judgeLine reports whether a line is of a request, and what is wrong with it.
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

// keysOf are the keys of one object, each as often as it is there.
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

// oddStatuses are what the upstream answers; those beyond 599 and below 100 are other.
var oddStatuses = []string{"200", "204", "206", "218", "226", "299", "306", "399", "404", "418", "420", "429", "451", "499", "500", "503", "511", "520", "530", "599", "600", "666", "700", "999", "000", "099", "20", "2000", "-200", "two"}

// labelInjection counts series before and after.
func labelInjection(st *stage) error {
	before := rig.Series{}
	st.begin = func(p *rig.Proxy) error {
		err := eachLabel(p)
		if err == nil {
			before, err = seriesOf(p)
		}
		return err
	}
	st.strike, st.needs = st.mix(50, labelRequest, labelRequest2), needs{answers: 100}
	st.judge = func(p *rig.Proxy) string {
		after, err := seriesOf(p)
		if err != nil {
			st.Add("/metrics: %v", err)
		}
		for name := range after {
			if _, had := before[name]; !had && !strings.Contains(name, `code="other"`) { // a client that left without a response, when that happens
				st.Add("a new series %s", name)
			}
		}
		return fmt.Sprintf("%d answered requests; %d series before, %d after, parsed by Prometheus's own parser", st.Counted(answers), len(before), len(after))
	}
	return st.bad(func(w http.ResponseWriter, r *http.Request) {
		path, evil := strings.Split(r.URL.Path, "/"), evil(fresh()) // /bad/STATUS/...
		kind := cmp.Or(r.Header.Get("Content-Type"), "text/plain")
		raw(w, fmt.Sprintf("HTTP/1.1 %s %s\r\n%s: x\r\nContent-Type: %s\r\nGrpc-Status: %s\r\nX-%d: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
			path[2], evil, askedField, kind, evil, rand.Uint32(), evil))
	})
}

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"} // the last is other

// eachLabel has each status answered to each method once.
func eachLabel(p *rig.Proxy) error {
	s := &strike{context.Background(), p.Addr, &tally{}}
	targets := []string{"/ok", "/none", "//moved", "/refused%zz"}
	for _, status := range oddStatuses {
		targets = append(targets, "/bad/"+status)
	}
	for _, method := range methods {
		for _, target := range targets {
			for _, kind := range []string{"text/plain", "application/grpc"} {
				request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: bench.test\r\nContent-Type: %s\r\nConnection: close\r\n\r\n", method, target, kind)
				if err := s.ask(p.Addr, request, patience, func(*http.Response) {}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func labelTarget(r *rand.Rand) string {
	if r.IntN(4) == 0 {
		return "/" + strconv.FormatUint(r.Uint64(), 36) + evil(r)
	}
	return "/bad/" + oddStatuses[r.IntN(len(oddStatuses))] + "/" + strconv.FormatUint(r.Uint64(), 36)
}

func labelMethod(r *rand.Rand) string {
	if r.IntN(2) == 0 {
		return methods[r.IntN(len(methods))]
	}
	return token(r)
}

func labelRequest(r *rand.Rand) string {
	method := labelMethod(r)
	if method == "HEAD" { // its responses are read as a GET's
		method = "GET"
	}
	kind := []string{"text/plain", "application/grpc"}[r.IntN(2)]
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %d.test\r\nContent-Type: %s\r\nX-Request-Timeout: %s\r\n%s: %s\r\n", method, labelTarget(r), r.Uint32(), kind, evil(r), token(r), evil(r))
}

func labelRequest2(r *rand.Rand) []string {
	return []string{":method", labelMethod(r), ":scheme", "http", ":authority", fmt.Sprintf("%d.test", r.Uint32()), ":path", labelTarget(r), "content-type", "application/grpc", "te", "trailers",
		"grpc-timeout", evil(r), strings.ToLower(token(r)), "x"}
}

// seriesOf are the samples of /metrics; its error says that the text is none of Prometheus's.
func seriesOf(p *rig.Proxy) (rig.Series, error) {
	_, text, err := p.Get("/metrics")
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	if _, err := parser.TextToMetricFamilies(bytes.NewReader(text)); err != nil {
		return nil, err
	}
	return rig.ReadSeries(string(text))
}
