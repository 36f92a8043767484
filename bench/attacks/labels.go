package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// labelStage counts series before and after.
type labelStage struct {
	findings
	before  map[string]bool
	answers atomic.Int64
}

// oddStatuses are what the upstream answers; those beyond 599 and below 100 are other.
var oddStatuses = []string{"200", "204", "206", "218", "226", "299", "306", "399", "404", "418", "420", "429", "451", "499", "500", "503", "511", "520", "530", "599", "600", "666", "700", "999", "000", "099", "20", "2000", "-200", "two"}

func labelInjection(st *stage) error {
	g := &labelStage{}
	err := st.aside(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.Split(r.URL.Path, "/") // /bad/STATUS/...
		evil := harmless.Replace(spell(rand.New(rand.NewPCG(rand.Uint64(), 1))))
		kind := "text/plain"
		if r.Header.Get("Content-Type") != "" {
			kind = r.Header.Get("Content-Type")
		}
		raw(w, fmt.Sprintf("HTTP/1.1 %s %s\r\n%s: x\r\nContent-Type: %s\r\nGrpc-Status: %s\r\nX-%d: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
			path[2], evil, askedField, kind, evil, rand.Uint32(), evil))
	}))
	var seed atomic.Uint64
	hear := func(*heard) { g.answers.Add(1) }
	st.begin = func(p *proxy) error { return g.begin(p) }
	st.strike = func(s *strike) error {
		r := rand.New(rand.NewPCG(seed.Add(1), 3))
		if r.IntN(4) > 0 {
			return s.ask(s.addr, pipeline(r, 50, labelRequest), time.Second, hear)
		}
		return s.askByHTTP2(func() ([]string, string) { return labelRequest2(r), "" }, hear)
	}
	st.judge = func(p *proxy) (string, []string) {
		after, err := p.series()
		if err != nil {
			g.add("/metrics: %v", err)
		}
		for name := range after {
			if !g.before[name] && !strings.Contains(name, `code="other"`) { // a client that left without a response, when that happens
				g.add("a new series %s", name)
			}
		}
		g.atLeast(100, g.answers.Load(), "answers")
		return fmt.Sprintf("%d answered requests; %d series before, %d after, parsed by Prometheus's own parser", g.answers.Load(), len(g.before), len(after)), g.all()
	}
	return err
}

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"} // the last is other

// begin has each status answered to each method once, then counts.
func (g *labelStage) begin(p *proxy) error {
	s := &strike{Context: context.Background(), addr: p.Addr, tally: &tally{}}
	targets := []string{"/ok", "/none", "//moved", "/refused%zz"}
	for _, status := range oddStatuses {
		targets = append(targets, "/bad/"+status)
	}
	for _, method := range methods {
		for _, target := range targets {
			for _, kind := range []string{"text/plain", "application/grpc"} {
				request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: bench.test\r\nContent-Type: %s\r\nConnection: close\r\n\r\n", method, target, kind)
				if err := s.ask(p.Addr, request, patience, func(*heard) {}); err != nil {
					return err
				}
			}
		}
	}
	var err error
	g.before, err = p.series()
	return err
}

func labelTarget(r *rand.Rand) string {
	if r.IntN(4) == 0 {
		return "/" + strconv.FormatUint(r.Uint64(), 36) + harmless.Replace(spell(r))
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
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %d.test\r\nContent-Type: %s\r\nX-Request-Timeout: %s\r\n%s: %s\r\n", method, labelTarget(r), r.Uint32(), kind, harmless.Replace(spell(r)), token(r), harmless.Replace(spell(r)))
}

func labelRequest2(r *rand.Rand) []string {
	return []string{":method", labelMethod(r), ":scheme", "http", ":authority", fmt.Sprintf("%d.test", r.Uint32()), ":path", labelTarget(r), "content-type", "application/grpc", "te", "trailers",
		"grpc-timeout", harmless.Replace(spell(r)), strings.ToLower(token(r)), "x"}
}

// series are the samples of /metrics by name and labels; its error says that the text is none of Prometheus's.
func (p *proxy) series() (map[string]bool, error) {
	res, err := admins.Get("http://" + p.Admin + "/metrics")
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	if _, err := parser.TextToMetricFamilies(bytes.NewReader(text)); err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			all[line[:i]] = true
		}
	}
	return all, nil
}
