package llm

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/policy/tokens"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/route"
)

// byModel routes the model big to /big, and gives each model a limit of one a minute.
func byModel(c *proxy.Config) {
	peers.Rationed("1/m", 0)(c)
	c.Default.RateLimit.SharedBy.Model = true
	r := c.Default
	r.Name, r.Match = "big", route.Match{Model: "big,huge"}
	r.Forward.StripPrefix, r.RateLimit = "", admission.RateLimit{}
	c.Routes = []proxy.Route{r}
}

// postJSON is a POST with a body in one or more chunks, or with a length if it is one.
func postJSON(chunks ...string) string {
	if len(chunks) == 1 {
		return fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(chunks[0]), chunks[0])
	}
	text := "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, s := range chunks {
		text += fmt.Sprintf("%x\r\n%s\r\n", len(s), s)
	}
	return text + "0\r\n\r\n"
}

// modelUpstream answers with the body that it got, and counts requests.
func modelUpstream(t *testing.T) *peers.Upstream {
	return peers.StartUpstream(t, func(c *peers.Conn) {
		for {
			head := c.Head()
			if head == "" {
				return
			}
			body := peers.DiscardBody(c, head)
			c.Say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}
	})
}

// A route and a key are found by the model, wherever in the body it stands and however that comes. The
// upstream gets every byte.
func TestTheModelInTheBodyDecides(t *testing.T) {
	filler := `"messages":[{"role":"user","content":"` + strings.Repeat("word ", 9000) + `"}]`
	for name, tc := range map[string]struct {
		chunks []string
		big    bool
	}{
		"first":               {[]string{`{"model":"big","x":1}`}, true},
		"another of the list": {[]string{`{"model":"huge"}`}, true},
		"last of many":        {[]string{`{` + filler + `,"model":"big"}`}, true},
		"in chunks":           {[]string{`{` + filler + `,"mo`, `del":"b`, `ig"}`}, true},
		"another model":       {[]string{`{"model":"small"}`}, false},
		"deeper":              {[]string{`{"x":{"model":"big"}}`}, false},
		"beyond the look":     {[]string{`{"x":"` + strings.Repeat("x", tokens.MaxLook) + `","model":"big"}`}, false},
		"no JSON":             {[]string{`model=big`}, false},
		"nested without end":  {[]string{`{"x":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `,"model":"big"}`}, false},
		"compressed":          {[]string{gzipped(`{"model":"big"}`)}, false},
		"no body":             {[]string{""}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := proxytest.Start(t, modelUpstream(t), byModel)
			c := p.Dial()
			for n := range 2 {
				want := 200
				if n == 1 && !tc.big {
					want = 429 // the default route has one a minute
				}
				body := strings.Join(tc.chunks, "")
				if want == 429 {
					body = "*"
				}
				c.Send(postJSON(tc.chunks...)).Want(want, body)
				if want == 429 {
					return
				}
			}
		})
	}
}

// A model has one route and one key, whether the path or the body names it.
func TestTheModelInThePathDecides(t *testing.T) {
	post := func(path, body string) string {
		return strings.Replace(postJSON(body), "POST / ", "POST "+path+" ", 1)
	}
	t.Run("route", func(t *testing.T) {
		p := proxytest.Start(t, modelUpstream(t), byModel)
		c := p.Dial()
		for range 2 { // the default route has one a minute
			c.Send(post("/openai/deployments/big/chat/completions", `{"x":1}`)).Want(200, "*")
			c.Send(post("/model/big/converse", `{"model":"small"}`)).Want(200, "*")
		}
	})
	t.Run("key", func(t *testing.T) {
		p := proxytest.Start(t, modelUpstream(t), func(c *proxy.Config) {
			peers.Rationed("1/m", 0)(c)
			c.Default.RateLimit.SharedBy.Model = true
		})
		c := p.Dial()
		c.Send(post("/v1beta/models/a:generateContent", `{"x":1}`)).Want(200, "*")
		c.Send(post("/v1beta/models/b:generateContent", `{"x":1}`)).Want(200, "*")
		c.Send(post("/v1/chat/completions", `{"model":"a"}`)).Want(429, "*")
	})
}

func gzipped(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, s)
	_ = w.Close()
	return b.String()
}

// The look waits for no more of a body than it needs, and a client that waits for a 100 gets one.
func TestTheLookWaitsForWhatItNeeds(t *testing.T) {
	p := proxytest.Start(t, modelUpstream(t), byModel)
	c := p.Dial()
	c.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 21\r\nExpect: 100-continue\r\n\r\n")
	if line, err := c.Reader.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%q %v", line, err)
	}
	_, _ = c.Reader.ReadString('\n')
	c.Send(`{"model":"b`)
	time.Sleep(20 * time.Millisecond)
	c.Send(`ig"}      `).Want(200, `{"model":"big"}      `)
}

// The same over HTTP/2: the body comes only after the 100, and in pieces.
func TestTheLookWaitsForWhatItNeedsOverHTTP2(t *testing.T) {
	p := proxytest.Start(t, modelUpstream(t), func(c *proxy.Config) { byModel(c); peers.SpeakHTTP2(c) })
	from, to := io.Pipe()
	continued := make(chan struct{})
	trace := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(continued) }})
	req, err := http.NewRequestWithContext(trace, "POST", "http://"+p.Addr+"/", from)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Expect", "100-continue")
	go func() {
		<-continued
		_, _ = io.WriteString(to, `{"model":"b`)
		_, _ = io.WriteString(to, `ig"}      `)
		_ = to.Close()
	}()
	res, err := peers.HTTP2Client(t, nil).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); res.StatusCode != 200 || string(b) != `{"model":"big"}      ` || err != nil {
		t.Errorf("%d %q %v", res.StatusCode, b, err)
	}
}

// What was read ahead of a body stays as it is while many requests wait for a retry.
func TestABodyThatWasLookedAtIsRepeatedWhole(t *testing.T) {
	var first sync.Map
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if _, known := first.LoadOrStore(r.Header.Get("X-Key"), true); !known {
			w.Header().Set("Retry-After-Ms", "300")
			w.WriteHeader(503)
			return
		}
		_, _ = w.Write(body)
	}))
	t.Cleanup(server.Close)
	p := proxytest.StartTo(t, server.URL, func(c *proxy.Config) {
		peers.HoldsStreams(t, c)
		c.Default.NoBudget, c.Default.Guard.NoBreaker = true, true
		c.Default.RateLimit = admission.RateLimit{Learn: true, Wait: time.Minute, SharedBy: admission.Sharing{Model: true}}
	})
	var wait sync.WaitGroup
	for n := range 4 * request.Crowd {
		wait.Go(func() {
			body := fmt.Sprintf(`{"messages":"%s","model":"m%d","max_tokens":1}`, strings.Repeat(fmt.Sprint(n), 300), n)
			time.Sleep(time.Duration(n%2) * 100 * time.Millisecond) // the later half gets buffers that were given back
			c := p.Dial()
			c.Send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nX-Key: %d\r\nContent-Length: %d\r\n\r\n", n, len(body)))
			time.Sleep(20 * time.Millisecond)
			c.Send(body).Want(200, body)
		})
	}
	wait.Wait()
}

// limitedUpstream has a bucket of tokens, which its headers tell.
type limitedUpstream struct {
	mu       sync.Mutex
	level    float64
	at       time.Time
	rate     float64
	capacity float64
	rejected int
	served   int
}

func (u *limitedUpstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	u.level = min(u.capacity, u.level+u.rate*now.Sub(u.at).Seconds())
	u.at = now
	const cost = 100
	ok := u.level >= cost
	if ok {
		u.level -= cost
		u.served++
	} else {
		u.rejected++
	}
	w.Header().Set("X-RateLimit-Limit-Tokens", fmt.Sprint(u.capacity))
	w.Header().Set("X-RateLimit-Remaining-Tokens", fmt.Sprint(int(u.level)))
	w.Header().Set("X-RateLimit-Reset-Tokens", (time.Duration((u.capacity-u.level)/u.rate*1e9) + time.Millisecond).Truncate(time.Millisecond).String())
	w.Header().Set("Content-Type", "application/json")
	if !ok {
		w.Header().Set("Retry-After-Ms", "200")
		w.WriteHeader(429)
	}
	_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":10,"completion_tokens":90}}`)
}

// An upstream that tells its limit is never asked for more, once it has told it.
func TestALearntLimitIsKept(t *testing.T) {
	u := &limitedUpstream{level: 1000, capacity: 1000, rate: 2000, at: time.Now()}
	server := httptest.NewServer(u)
	t.Cleanup(server.Close)
	p := proxytest.StartTo(t, server.URL, func(c *proxy.Config) {
		c.Default.RateLimit = admission.RateLimit{Learn: true, Wait: time.Minute}
		c.Default.CountTokens = true
		c.Default.RequestTimeout = time.Minute
	})
	body := `{"model":"m","max_tokens":91}`
	const requests = 40
	began := time.Now()
	c := p.Dial()
	c.Send(postJSON(body)).Want(200, "*")
	var wait sync.WaitGroup
	for range requests - 1 {
		wait.Go(func() { p.Dial().Send(postJSON(body)).Want(200, "*") })
	}
	wait.Wait()
	if u.rejected > requests/10 || u.served != requests { // a slow machine delays a request here, and its response there
		t.Errorf("%d rejected, %d served", u.rejected, u.served)
	}
	if least := time.Duration((requests*100 - u.capacity) / u.rate * 1e9); time.Since(began) > 2*least+time.Second {
		t.Errorf("took %v, the limit needs %v", time.Since(began), least)
	}
	p.Seen.Outcome(t, requests-1)
	if got := p.Seen.Used[tokens.Delivered]; got != (tokens.Count{Input: 10 * requests, Output: 90 * requests}) {
		t.Errorf("counted %+v", got)
	}
	q := p.Stats().RateLimits
	if len(q) != 1 || q[0].Tokens != 100*requests || q[0].TokenLimit < 100_000 || q[0].TokenLimit > 121_000 || q[0].Rate != "auto" {
		t.Errorf("%+v", q)
	}
}

// A limit that is set counts what is expected of a request until its response says what it used.
func TestALimitOfTokensIsSettledWithTheUsage(t *testing.T) {
	usage := `{"usage":{"prompt_tokens":10,"completion_tokens":40}}`
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.ResponseWithBody(200, usage, "Content-Type: application/json"))), func(c *proxy.Config) {
		c.Default.RateLimit = admission.RateLimit{Tokens: ratelimit.Rate{Count: 1000, Per: time.Hour}}
		c.Default.CountTokens = true
	})
	c := p.Dial()
	body := `{"max_tokens":900}`
	c.Send(postJSON(body)).Want(200, usage) // which leaves 950
	c.Send(postJSON(body)).Want(200, usage) // which leaves 900
	c.Send(postJSON(body)).Want(429, "*")
	p.Dial().Send(postJSON(`{"max_tokens":800}`)).Want(200, usage)
}

// A request that allows more than the whole limit takes the whole limit, and gets back what it did not
// use of that.
func TestARequestForMoreThanTheLimitTakesTheLimit(t *testing.T) {
	usage := `{"usage":{"prompt_tokens":10,"completion_tokens":890}}`
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.ResponseWithBody(200, usage, "Content-Type: application/json"))), func(c *proxy.Config) {
		c.Default.RateLimit = admission.RateLimit{Tokens: ratelimit.Rate{Count: 1000, Per: time.Hour}}
		c.Default.CountTokens = true
	})
	c := p.Dial()
	c.Send(postJSON(`{"max_tokens":2000}`)).Want(200, usage) // which leaves 100
	c.Send(postJSON(`{"max_tokens":2000}`)).Want(429, "*")
	p.Dial().Send(postJSON(`{"max_tokens":60}`)).Want(200, usage)
}

// A limit that its headers say is renewed by now stops no request, in every form.
func TestALearntLimitThatIsRenewedStopsNobody(t *testing.T) {
	for name, headers := range map[string][]string{
		"seconds":  {"RateLimit-Limit: 10", "RateLimit-Remaining: 0", "RateLimit-Reset: 0"},
		"a list":   {`RateLimit-Policy: "d";q=10;w=60`, `RateLimit: "d";r=0;t=0`},
		"draft 7":  {"RateLimit: limit=10, remaining=0, reset=0"},
		"now":      {"X-RateLimit-Limit: 10", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1767225600", "Date: Thu, 01 Jan 2026 00:00:00 GMT"},
		"past":     {"X-RateLimit-Limit: 10", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1767225000", "Date: Thu, 01 Jan 2026 00:00:00 GMT"},
		"a bucket": {"X-RateLimit-Limit-Tokens: 1000", "X-RateLimit-Remaining-Tokens: 0", "X-RateLimit-Reset-Tokens: 0s"},
	} {
		t.Run(name, func(t *testing.T) {
			up := func(c *peers.Conn) {
				for head := c.Head(); head != ""; head = c.Head() {
					peers.DiscardBody(c, head)
					c.Say("%s", peers.ResponseWithBody(200, "ok", headers...))
				}
			}
			proxytest.InMemory(t, up, func(c *proxy.Config) {
				c.Default.RateLimit = admission.RateLimit{Learn: true, Probe: 2 * time.Minute, Wait: time.Minute}
			}, func(t *testing.T, m *proxytest.Memory) {
				c := m.Client()
				began := time.Now()
				for range 30 {
					c.Send(postJSON(`{"model":"m","max_tokens":100}`)).Want(200, "ok")
				}
				if took := time.Since(began); took > 30*time.Second {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// With a learnt limit, no request is refused that the upstream accepts: an image counts what the
// upstream counts, as do a prompt that was cached and output that is allowed and not used.
func TestALearntLimitRefusesNothingThatTheUpstreamAccepts(t *testing.T) {
	image := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("\x00\xff\x7e image"), 20_000))
	openAI := []string{"X-RateLimit-Limit-Tokens: 30000", "X-RateLimit-Remaining-Tokens: 29100", "X-RateLimit-Reset-Tokens: 1.8s"}
	anthropic := []string{"Anthropic-RateLimit-Input-Tokens-Limit: 30000", "Anthropic-RateLimit-Input-Tokens-Remaining: 29900", "Anthropic-RateLimit-Input-Tokens-Reset: 2000-01-01T01:00:00Z"}
	for name, tc := range map[string]struct {
		body, usage string
		headers     []string
	}{
		"an image": {`{"model":"m","max_tokens":100,"messages":[{"content":"data:image/png;base64,` + image + `"}]}`,
			`{"usage":{"prompt_tokens":800,"completion_tokens":100}}`, openAI},
		"a cached prompt": {`{"model":"m","max_tokens":100,"messages":[{"content":"` + strings.Repeat("some words ", 10_000) + `"}]}`,
			`{"usage":{"input_tokens":100,"cache_read_input_tokens":27000,"output_tokens":100}}`, anthropic},
		"much allowed":                   {`{"model":"m","max_tokens":64000,"messages":[]}`, `{"usage":{"prompt_tokens":10,"completion_tokens":890}}`, openAI},
		"much allowed, usage not stated": {`{"model":"m","max_tokens":64000,"messages":[]}`, `{}`, openAI},
	} {
		t.Run(name, func(t *testing.T) {
			up := func(c *peers.Conn) {
				for head := c.Head(); head != ""; head = c.Head() {
					peers.DiscardBody(c, head)
					c.Say("%s", peers.ResponseWithBody(200, tc.usage, append(tc.headers, "Content-Type: application/json")...))
				}
			}
			proxytest.InMemory(t, up, func(c *proxy.Config) {
				c.Default.RateLimit = admission.RateLimit{Learn: true, Probe: 2 * time.Minute, Wait: time.Minute}
				c.Default.CountTokens = true
			}, func(t *testing.T, m *proxytest.Memory) {
				c := m.Client()
				const requests = 10
				began := time.Now()
				for range requests {
					c.Send(postJSON(tc.body)).Want(200, tc.usage)
					time.Sleep(time.Second / 4)
				}
				if took := time.Since(began); took > (requests/4+3)*time.Second {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// A usage that lies does no more than use up the limit that was set: a negative one gives nothing back,
// and a huge one is no debt. The responses are relayed as they are, and none is retried.
func TestALyingUsageDoesNoHarm(t *testing.T) {
	for name, tc := range map[string]struct {
		usage string
		next  int // the status of the request after it, which needs 900 of 1000
	}{
		"below zero": {`{"usage":{"prompt_tokens":-5000,"completion_tokens":-5000}}`, 429},
		"huge":       {`{"usage":{"prompt_tokens":900000000000000000,"completion_tokens":900000000000000000}}`, 429},
		"no number":  {`{"usage":{"prompt_tokens":"many","completion_tokens":[[[1]]]}}`, 429},
	} {
		t.Run(name, func(t *testing.T) {
			up := func(c *peers.Conn) {
				for head := c.Head(); head != ""; head = c.Head() {
					peers.DiscardBody(c, head)
					c.Say("%s", peers.ResponseWithBody(200, tc.usage, "Content-Type: application/json"))
				}
			}
			proxytest.InMemory(t, up, func(c *proxy.Config) {
				peers.HoldsStreams(t, c)
				c.Default.RateLimit = admission.RateLimit{Tokens: ratelimit.Rate{Count: 1000, Per: time.Hour}}
				c.Default.CountTokens = true
			}, func(t *testing.T, m *proxytest.Memory) {
				c := m.Client()
				c.Send(postJSON(`{"max_tokens":900}`)).Want(200, tc.usage)
				c.Send(postJSON(`{"max_tokens":900}`)).Want(tc.next, "*")
				time.Sleep(time.Hour) // the limit is whole again, and no debt is left
				m.Client().Send(postJSON(`{"max_tokens":900}`)).Want(200, tc.usage)
				if n := m.Up.Sends(); n != 2 {
					t.Errorf("%d sent, want 2", n)
				}
			})
		})
	}
}

// Headers of up to 64 KiB pass, in both directions, on a route for a language model's API. A response
// with longer ones is an error of the upstream, and the POST is not repeated.
func TestHeadersOf64KiBOnALanguageModelsRoute(t *testing.T) {
	for name, tc := range map[string]struct {
		request, response int // bytes of one header's value
		status, sends     int
	}{
		"from the client":              {63 << 10, 10, 200, 1},
		"from the upstream":            {10, 63 << 10, 200, 1},
		"from both":                    {63 << 10, 63 << 10, 200, 1},
		"too long, from the client":    {64 << 10, 10, 431, 0},
		"too long, from the upstream":  {10, 64 << 10, 502, 1},
		"a rate limit's, of that size": {10, -63 << 10, 200, 1},
	} {
		t.Run(name, func(t *testing.T) {
			field := "X-Long"
			if tc.response < 0 {
				field, tc.response = "X-RateLimit-Remaining-Tokens", -tc.response
			}
			value := strings.Repeat("7", tc.response)
			u := peers.StartUpstream(t, peers.Script(peers.ResponseWithBody(200, "ok", field+": "+value)))
			p := proxytest.Start(t, u, func(c *proxy.Config) {
				peers.HoldsStreams(t, c)
				c.Default.RateLimit = admission.RateLimit{Tokens: ratelimit.Rate{Count: 1000, Per: time.Hour}}
				c.Default.CountTokens = true
			})
			request := strings.Replace(postJSON(`{"model":"m","max_tokens":9}`), "\r\n", "\r\nX-Long: "+strings.Repeat("a", tc.request)+"\r\n", 1)
			res, body, err := p.Dial().Send(request).Response("POST")
			if err != nil || res.StatusCode != tc.status || tc.status == 200 && (body != "ok" || res.Header.Get(field) != value) {
				t.Errorf("%v, %v, body of %d bytes", res.Status, err, len(body))
			}
			if n := u.Sends(); n != tc.sends {
				t.Errorf("%d sent, want %d", n, tc.sends)
			}
		})
	}
}

// What a response used is counted by what became of it, and a lie is not believed.
func TestTokensByTheirFate(t *testing.T) {
	start := "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n"
	end := "data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15}}\n\n"
	for name, tc := range map[string]struct {
		responses []string
		fate      tokens.Fate
		want      tokens.Count
	}{
		"a stream":                {[]string{eventStream(start + peers.FirstText + end)}, tokens.Delivered, tokens.Count{Input: 25, Output: 15}},
		"a stream that is cut":    {[]string{peers.StreamHeaders + chunk(start+peers.FirstText) + "\x00"}, tokens.Wasted, tokens.Count{Input: 25, Output: 1}},
		"an error, then a stream": {[]string{eventStream(start + peers.Overloaded), eventStream(peers.FirstText)}, tokens.Retried, tokens.Count{Input: 25, Output: 1}},
		"JSON":                    {[]string{peers.ResponseWithBody(200, `{"usage":{"input_tokens":3,"output_tokens":4,"cache_read_input_tokens":5}}`, "Content-Type: application/json")}, tokens.Delivered, tokens.Count{Input: 3, Cached: 5, Output: 4}},
		"a lie":                   {[]string{peers.ResponseWithBody(200, `{"usage":{"input_tokens":-3,"output_tokens":4e99,"cache_read_input_tokens":99999999999999999999}}`, "Content-Type: application/json")}, tokens.Delivered, tokens.Count{}},
		"JSON that is cut":        {[]string{"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\nConnection: close\r\n\r\n{\"usage\":{\"input_tokens\":3}"}, tokens.Wasted, tokens.Count{Input: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(tc.responses...)), func(c *proxy.Config) {
				peers.HoldsStreams(t, c)
				c.Default.CountTokens = true
			})
			c := p.Dial()
			c.Send(peers.PostABC)
			_, _ = io.Copy(io.Discard, io.LimitReader(c, 1)) // it has begun
			p.Seen.Outcome(t, 0)
			defer p.Seen.Lock()()
			if got := p.Seen.Used[tc.fate]; got != tc.want {
				t.Errorf("%v %+v, want %+v of %+v", tc.fate, got, tc.want, p.Seen.Used)
			}
		})
	}
}
